"""Getting the bytes of images, bounded in bytes, time, redirects and number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx

from flare import __version__
from flare.frontend import ImageAddressError
from flare.frontend.images import ImageAddress, ImagesWanted
from flare.server.jobs import Fetched
from flare.server.remote_images.addresses import is_public, resolved
from flare.server.remote_images.domains import AllowedDomains, host_of

MOST_REDIRECTS = 3
MOST_IMAGES = 64
"""Of one request."""

T = TypeVar("T")

_REDIRECTS = (301, 302, 303, 307, 308)
# What storage services say of files whose type nobody told them: the bytes are looked at anyway.
_UNTYPED = ("application/octet-stream", "binary/octet-stream")
_SHOWN = 100

logger = logging.getLogger("flare.server")


class RemoteImages:
    """Fetches from `domains`, `at_once` images at the same time over all requests. An image has `most_bytes`
    and arrives within `timeout` seconds; those of one request together have `most_together` bytes.

    A host that was allowed by a pattern must be on the public network. A connection goes to the IP address
    that was checked, and is used once.
    """

    def __init__(
        self, domains: AllowedDomains, most_bytes: int, most_together: int, timeout: float, at_once: int
    ) -> None:
        self._domains = domains
        self._most_bytes = most_bytes
        self._most_together = most_together
        self._timeout = timeout
        self._places = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="flare-resolve")
        # A kept connection would be found by its IP address alone, and serve another name's request.
        self._transport = httpx.AsyncHTTPTransport(
            verify=httpx.create_ssl_context(),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def provide(self, work: Callable[[Fetched], Awaitable[T]]) -> T:
        """What `work` returns, called again with the images that it wants. Raises ImageAddressError for one
        that is not to be had, and what `work` raises."""
        try:
            return await work({})
        except ImagesWanted as error:
            wanted = error.addresses
        return await work(await self.fetch(wanted))

    async def fetch(self, wanted: Sequence[ImageAddress]) -> Fetched:
        """The contents at http and https addresses. Raises ImageAddressError naming one that is not to be had
        and why."""
        first = {image.address: image for image in reversed(wanted)}
        if len(first) > MOST_IMAGES:
            raise ImageAddressError(
                f"a request may name {MOST_IMAGES} images by address, not {len(first)}", field="messages"
            )
        room = _Room(self._most_together)
        refused: list[ImageAddressError] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {one.address: group.create_task(self._one(one, room)) for one in first.values()}
        except* ImageAddressError as errors:
            refused += [error for error in errors.exceptions if isinstance(error, ImageAddressError)]
        if refused:
            raise refused[0]
        return {address: task.result() for address, task in tasks.items()}

    async def _one(self, image: ImageAddress, room: _Room) -> bytearray:
        async with self._places:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._followed(image, room)
            except (TimeoutError, httpx.TimeoutException):
                raise _refusal(image, f"did not arrive within {self._timeout:g} s") from None
            except httpx.HTTPError as error:
                why = str(error) or type(error).__name__
                raise _refusal(image, f"cannot be fetched: {why[:_SHOWN]}") from None

    async def _followed(self, image: ImageAddress, room: _Room) -> bytearray:
        url = self._checked(image, image.address)
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._response(image, url)
            try:
                location = response.headers.get("location")
                if response.status_code not in _REDIRECTS or location is None:
                    return await self._read(image, response, room)
            finally:
                await response.aclose()
            url = self._checked(image, location, url)
        raise _refusal(image, f"is behind more than {MOST_REDIRECTS} redirects")

    def _checked(self, image: ImageAddress, address: str, base: httpx.URL | None = None) -> httpx.URL:
        """`address`, or where a redirect from `base` leads."""
        way = "" if base is None else "redirects to an address that "
        try:
            url = httpx.URL(address) if base is None else base.join(address)
        except httpx.InvalidURL as error:
            raise _refusal(image, f"{way}cannot be read: {error}") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise _refusal(image, f"{way}is not fetched: only http and https are")
        if url.userinfo:
            raise _refusal(image, f"{way}is not fetched: it holds a name or password")
        if not self._domains.allows(url):
            raise _refusal(
                image, f"{way}is not fetched: this server does not allow {url.netloc.decode()[:_SHOWN]!r}"
            )
        return url

    async def _response(self, image: ImageAddress, url: httpx.URL) -> httpx.Response:
        """The head of the answer from the first IP address that takes a connection."""
        host = host_of(url)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await resolved(host, port, self._threads)
        except (OSError, UnicodeError):
            raise _refusal(image, f"is not fetched: {host[:_SHOWN]!r} has no address") from None
        if not self._domains.names(url) and not all(is_public(address) for address in addresses):
            raise _refusal(
                image,
                f"is not fetched: {host[:_SHOWN]!r} is in a private network and not allowed by its name",
            )
        headers = {
            "host": url.netloc.decode("ascii"),
            "user-agent": f"flare/{__version__}",
            "accept": "image/*",
            "accept-encoding": "identity",
        }
        # Short of the whole: a handshake that is cancelled would leave its socket to the garbage collector.
        extensions = {"sni_hostname": host, "timeout": httpx.Timeout(0.9 * self._timeout).as_dict()}
        failed: httpx.HTTPError = httpx.ConnectError("no address")
        for address in addresses:
            request = httpx.Request(
                "GET", url.copy_with(host=address), headers=headers, extensions=extensions
            )
            try:
                return await self._transport.handle_async_request(request)
            except httpx.ConnectError as error:
                failed = error
        raise failed

    async def _read(self, image: ImageAddress, response: httpx.Response, room: _Room) -> bytearray:
        if response.status_code != 200:
            raise _refusal(image, f"was answered with status {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith("image/") and kind not in _UNTYPED:
            raise _refusal(image, f"is no image: its content-type is {kind[:_SHOWN]!r}")
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise _refusal(image, f"came with content-encoding {coding[:_SHOWN]!r}, which was not asked for")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._most_bytes:
            raise _refusal(image, f"has more than {self._most_bytes} bytes")
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > self._most_bytes:
                raise _refusal(image, f"has more than {self._most_bytes} bytes")
            if not room.take(len(chunk)):
                raise _refusal(image, f"and others have more than {self._most_together} bytes together")
        logger.debug("fetched an image of %d bytes", len(content))
        return content


class _Room:
    """What one request may fetch, in bytes."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes

    def take(self, nbytes: int) -> bool:
        self._left -= nbytes
        return self._left >= 0


def _refusal(image: ImageAddress, why: str) -> ImageAddressError:
    return ImageAddressError(f"{image.where}: {image.address[:_SHOWN]!r} {why}", field=image.where)
