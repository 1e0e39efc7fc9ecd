"""Hosts that images may be fetched from."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from flare.errors import FlareError

_FIELD = "allowed_media_domains"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Domain:
    """`host` "" is any; `below` means the names under it. `port` None is the scheme's own."""

    host: str
    below: bool
    port: int | None


class AllowedDomains:
    """`entries` are `HOST`, `*.HOST` for every name under it, or `*` for every public host, each with the
    scheme's own port or one behind a colon. Raises FlareError for what is none of these."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._domains = [_parsed(entry) for entry in entries]

    def __bool__(self) -> bool:
        return bool(self._domains)

    def allows(self, url: httpx.URL) -> bool:
        """Whether the host and port of an http or https address are allowed."""
        return any(_fits(domain, url) for domain in self._domains)

    def names(self, url: httpx.URL) -> bool:
        """Whether the host is listed itself, not by a pattern: then it may be of a private network."""
        return any(not domain.below and domain.host and _fits(domain, url) for domain in self._domains)


def host_of(url: httpx.URL) -> str:
    """The host in its one form: ASCII, small letters, no dot at the end, IP addresses in short."""
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return host


def _fits(domain: _Domain, url: httpx.URL) -> bool:
    own = _PORTS[url.scheme]
    if (url.port or own) != (domain.port or own):
        return False
    host = host_of(url)
    if domain.below:
        return host.endswith(f".{domain.host}") and not _is_address(host)
    return domain.host in ("", host)


def _parsed(entry: str) -> _Domain:
    text = entry.strip()
    any_host = text == "*" or text.startswith("*:")
    below = text.startswith("*.")
    name = "any" + text[1:] if any_host else text[2:] if below else text
    if ":" in name and _is_address(name):
        name = f"[{name}]"
    try:
        url = httpx.URL(f"http://{name}/")
        # Port 80 is the default of this scheme, and would be lost.
        port = httpx.URL(f"https://{name}/").port or url.port
    except httpx.InvalidURL as error:
        raise _no_domain(entry, str(error)) from None
    if not url.host or url.path != "/" or url.userinfo or url.query or url.fragment or "*" in url.host:
        raise _no_domain(entry, "it is a host alone")
    if below and _is_address(host_of(url)):
        raise _no_domain(entry, "no names are under an IP address")
    return _Domain("" if any_host else host_of(url), below, port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _no_domain(entry: str, why: str) -> FlareError:
    return FlareError(
        f"allowed media domain {entry!r} is not HOST, *.HOST or *, with or without :PORT: {why}", field=_FIELD
    )
