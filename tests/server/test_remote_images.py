"""Images by address: what is fetched, what is refused and why, and what never happens."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import httpx
import pytest
from picture_server import PictureServer, chunks, content, redirect, silence

from flare.errors import FlareError
from flare.frontend import ImageAddressError
from flare.frontend.images import ImageAddress
from flare.server.remote_images import AllowedDomains, RemoteImages, fetch
from flare.server.remote_images.addresses import is_public

PICTURE = b"not looked at here" * 100
LIMIT = 10_000
ANSWERS = {
    "/a.png": content(PICTURE),
    "/a%20b.png?q=1&r=%C3%BC": content(b"query"),
    "/untyped": content(PICTURE, kind="application/octet-stream"),
    "/pieces": chunks(b"xyz", 20),
    "/redirect": redirect("/a.png", 301),
    "/two": redirect("redirect", 307),
    "/three": redirect("/two", 308),
    "/four": redirect("/three"),
    "/away": redirect("http://elsewhere.test/a.png"),
    "/inside": redirect("http://169.254.169.254/latest/meta-data"),
    "/file": redirect("file:///etc/passwd"),
    "/secret": redirect("http://name:word@127.0.0.1/a.png"),
    "/nowhere": redirect(None),
    "/big": content(b"x" * (LIMIT + 1)),
    "/declared": content(b"x", length=LIMIT + 1),
    "/endless": chunks(b"x" * 1000, 1_000_000),
    "/drip": chunks(b"x", 1000, pause=0.02),
    "/silence": silence(2.0),
    "/short": content(b"x", length=5000),
    "/page": content(b"<html>", kind="text/html; charset=utf-8"),
    "/kindless": content(PICTURE, kind=None),
    "/packed": content(PICTURE, Content_Encoding="gzip"),
    "/gone": content(b"no", status=404),
    "/error": content(PICTURE, status=500),
    "/cookie": content(PICTURE, Set_Cookie="a=b"),
    "/slow": chunks(b"x", 5, pause=0.02),
}


@pytest.fixture(scope="module")
def pictures() -> Iterator[PictureServer]:
    with PictureServer(ANSWERS) as server:
        yield server


def images(*domains: str, timeout: float = 5.0, together: int = 100_000, at_once: int = 4) -> RemoteImages:
    return RemoteImages(AllowedDomains(domains), LIMIT, together, timeout, at_once)


def get(made: RemoteImages, *addresses: str) -> list[bytes]:
    wanted = [ImageAddress(address, f"images[{index}]") for index, address in enumerate(addresses)]
    found = asyncio.run(made.fetch(wanted))
    return [bytes(found[address]) for address in addresses]


def local(pictures: PictureServer, **options: float) -> RemoteImages:
    return images(f"127.0.0.1:{pictures.port}", **options)  # type: ignore[arg-type]


@pytest.fixture
def everything_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is this machine."""

    async def here(host: str, port: int, threads: Executor) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(fetch, "resolved", here)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/a.png", PICTURE),
        ("/a%20b.png?q=1&r=%C3%BC", b"query"),
        ("/a b.png?q=1&r=ü", b"query"),
        ("/a.png#part", PICTURE),
        ("/untyped", PICTURE),
        ("/pieces", b"xyz" * 20),
        ("/redirect", PICTURE),
        ("/three", PICTURE),
    ],
)
def test_allowed_images_are_fetched(pictures: PictureServer, path: str, body: bytes) -> None:
    assert get(local(pictures), pictures.url(path)) == [body]


def test_nothing_travels_along(
    pictures: PictureServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    del pictures.asked[:]
    made = local(pictures)

    async def twice() -> None:
        for _ in range(2):
            await made.fetch([ImageAddress(pictures.url("/cookie"), "i")])

    asyncio.run(twice())
    for _, headers in pictures.asked:
        assert set(headers) == {"host", "user-agent", "accept", "accept-encoding"}
        assert headers["host"] == f"127.0.0.1:{pictures.port}"
        assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/four", "more than 3 redirects"),
        ("/away", "redirects to an address that is not fetched: this server does not allow 'elsewhere.test'"),
        ("/inside", "does not allow '169.254.169.254'"),
        ("/file", "only http and https"),
        ("/secret", "redirects to an address that is not fetched: it holds a name or password"),
        ("/nowhere", "was answered with status 302"),
        ("/big", "more than 10000 bytes"),
        ("/declared", "more than 10000 bytes"),
        ("/endless", "more than 10000 bytes"),
        ("/short", "cannot be fetched: peer closed connection"),
        ("/page", "is no image: its content-type is 'text/html'"),
        ("/kindless", "is no image: its content-type is ''"),
        ("/packed", "content-encoding 'gzip'"),
        ("/gone", "status 404"),
        ("/error", "status 500"),
    ],
)
def test_what_is_no_image_is_refused(pictures: PictureServer, path: str, why: str) -> None:
    address = pictures.url(path)
    with pytest.raises(ImageAddressError) as caught:
        get(local(pictures), pictures.url("/a.png"), address)
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"images[1]: {address!r} ")
    assert (caught.value.code, caught.value.field) == ("image_not_fetched", "images[1]")


@pytest.mark.parametrize("path", ["/drip", "/silence"])
def test_slow_servers_are_given_up(pictures: PictureServer, path: str) -> None:
    started = time.monotonic()
    with pytest.raises(ImageAddressError, match=r"did not arrive within 0.2 s"):
        get(local(pictures, timeout=0.2), pictures.url(path))
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://example.com/a.png", "does not allow 'example.com'"),
        ("http://127.0.0.1/a.png", "does not allow '127.0.0.1'"),
        ("http://127.0.0.1:1/a.png", "does not allow '127.0.0.1:1'"),
        ("https://127.0.0.1/a.png", "does not allow"),
        ("http://me@127.0.0.1:{port}/a.png", "holds a name or password"),
        ("http://:word@127.0.0.1:{port}/a.png", "holds a name or password"),
        ("http://127.0.0.1:{port}@example.com/a.png", "holds a name or password"),
        ("http://example.com\\@127.0.0.1:{port}/", "holds a name or password"),
        ("http://2130706433:{port}/a.png", "does not allow"),
        ("http://0x7f.1:{port}/a.png", "does not allow"),
        ("http://[::ffff:127.0.0.1]:{port}/a.png", "does not allow"),
        ("http://localhost:{port}/a.png", "does not allow"),
        ("http:///a.png", "only http and https"),
        ("http://[::1/a.png", "cannot be read"),
        ("http://127.0.0.1:{port}/a\n.png", "cannot be read"),
        ("http://127.0.0.1:port/", "cannot be read"),
        ("http://" + "a" * 70_000, "cannot be read"),
    ],
)
def test_nobody_is_asked_about_other_addresses(pictures: PictureServer, address: str, why: str) -> None:
    del pictures.asked[:]
    with pytest.raises(ImageAddressError) as caught:
        get(local(pictures), address.replace("{port}", str(pictures.port)))
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500
    assert not pictures.asked


def test_a_name_is_asked_for_at_the_address_that_was_checked(
    pictures: PictureServer, everything_is_here: None
) -> None:
    del pictures.asked[:]
    assert get(images(f"pictures.test:{pictures.port}"), pictures.url("/a.png", "PICTURES.test.")) == [
        PICTURE
    ]
    assert pictures.asked[0][1]["host"] == f"pictures.test.:{pictures.port}"


@pytest.mark.parametrize("domain", ["*", "*.test"])
def test_a_pattern_does_not_reach_private_networks(
    pictures: PictureServer, everything_is_here: None, domain: str
) -> None:
    pattern, url = f"{domain}:{pictures.port}", pictures.url("/a.png", "pictures.test")
    del pictures.asked[:]
    with pytest.raises(
        ImageAddressError, match=r"'pictures.test' is in a private network and not allowed by its name"
    ):
        get(images(pattern), url)
    assert not pictures.asked
    assert get(images(pattern, f"pictures.test:{pictures.port}"), url) == [PICTURE]


def test_one_private_address_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(host: str, port: int, threads: Executor) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    monkeypatch.setattr(fetch, "resolved", both)
    with pytest.raises(ImageAddressError, match="is in a private network"):
        get(images("*"), "http://pictures.test/")


def test_the_next_address_is_tried(pictures: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def several(host: str, port: int, threads: Executor) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]  # nobody listens on the first

    monkeypatch.setattr(fetch, "resolved", several)
    assert get(images(f"pictures.test:{pictures.port}"), pictures.url("/a.png", "pictures.test")) == [PICTURE]


def test_hosts_that_are_not_there() -> None:
    with pytest.raises(ImageAddressError, match="'no-such-host\\.invalid' has no address"):
        get(images("no-such-host.invalid"), "http://no-such-host.invalid/a.png")
    with pytest.raises(ImageAddressError, match="cannot be fetched"):
        get(images("127.0.0.1:1"), "http://127.0.0.1:1/a.png")


def test_an_image_is_fetched_once_for_a_request(pictures: PictureServer) -> None:
    del pictures.asked[:]
    url = pictures.url("/a.png")
    assert get(local(pictures), url, url, url) == [PICTURE] * 3
    assert len(pictures.asked) == 1


def test_number_and_bytes_of_a_request_are_bounded(pictures: PictureServer) -> None:
    urls = [pictures.url(f"/a.png#{index}") for index in range(65)]
    del pictures.asked[:]
    with pytest.raises(ImageAddressError, match="64 images by address, not 65"):
        get(local(pictures), *urls)
    assert not pictures.asked
    assert len(get(local(pictures, together=4 * len(PICTURE)), *urls[:4])) == 4
    with pytest.raises(ImageAddressError, match=f"more than {4 * len(PICTURE)} bytes together"):
        get(local(pictures, together=4 * len(PICTURE)), *urls[:5])


def test_fetches_at_the_same_time_are_bounded() -> None:
    # A server of its own: the shared one may still be silent to requests that were given up.
    with PictureServer(ANSWERS) as pictures:
        get(local(pictures, at_once=3), *(pictures.url(f"/slow#{index}") for index in range(9)))
    assert pictures.most == 3


def test_a_request_that_ends_gives_its_places_back(pictures: PictureServer) -> None:
    made = local(pictures, at_once=1)

    async def cancelled_then_another() -> None:
        first = asyncio.create_task(made.fetch([ImageAddress(pictures.url("/silence"), "i")]))
        await asyncio.sleep(0.1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await made.fetch([ImageAddress(pictures.url("/a.png"), "i")])

    started = time.monotonic()
    asyncio.run(cancelled_then_another())
    assert time.monotonic() - started < 1.5


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of `pictures.test` that signs itself, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = tmp_path_factory.mktemp("tls") / "pictures.pem"
    made = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pictures.test"
    )
    subprocess.run(
        [
            *made.split(),
            "-addext",
            "subjectAltName=DNS:pictures.test",
            "-keyout",
            file,
            "-out",
            f"{file}.crt",
        ],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_a_certificate_must_be_of_the_name(
    certified: Path, everything_is_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certified)
    with PictureServer(ANSWERS, context) as server:
        domains = [f"{name}.test:{server.port}" for name in ("pictures", "other")]
        url = server.url("/a.png", "pictures.test", "https")
        with pytest.raises(ImageAddressError, match="CERTIFICATE_VERIFY_FAILED"):
            get(images(*domains), url)  # nobody has signed it
        monkeypatch.setenv("SSL_CERT_FILE", str(certified))
        assert get(images(*domains), url) == [PICTURE]
        with pytest.raises(ImageAddressError, match="CERTIFICATE_VERIFY_FAILED"):
            get(images(*domains), server.url("/a.png", "other.test", "https"))
        # Not even when the connection to that address is there already.
        made = images(*domains)
        assert get(made, url) == [PICTURE]
        with pytest.raises(ImageAddressError, match="CERTIFICATE_VERIFY_FAILED"):
            get(made, url, server.url("/a.png", "other.test", "https"))


@pytest.mark.parametrize(
    ("entry", "allowed", "others"),
    [
        ("example.com", "http://example.com/ https://EXAMPLE.com./", "http://a.example.com/ http://example.com:81/"),
        ("Example.com:8080", "http://example.com:8080/ https://example.com:8080/", "http://example.com/"),
        ("example.com:80", "http://example.com/ https://example.com:80/", "https://example.com/"),
        ("*.example.com", "http://a.example.com/ https://b.a.example.com/", "http://example.com/ http://badexample.com/"),
        ("*", "http://a/ https://1.2.3.4/", "http://a:81/"),
        ("*:81", "http://a:81/ https://[::1]:81/", "http://a/"),
        ("::1", "http://[::1]/ http://[0:0::1]/", "http://[::2]/"),
        ("[::1]:81", "http://[::1]:81/", "http://[::1]/"),
        ("127.0.0.1", "http://127.0.0.1/", "http://127.0.0.1.example.com/ http://1.0.0.127/"),
        ("bücher.example", "http://xn--bcher-kva.example/ http://BÜCHER.example/", "http://bucher.example/"),
        ("*.0.0.1" + ".x", "http://a.0.0.1.x/", "http://127.0.0.1/"),
    ],
)  # fmt: skip
def test_domains(entry: str, allowed: str, others: str) -> None:
    domains = AllowedDomains([entry])
    assert all(domains.allows(httpx.URL(url)) for url in allowed.split())
    assert not any(domains.allows(httpx.URL(url)) for url in others.split())


@pytest.mark.parametrize(
    "entry",
    ["", " ", "http://a.b", "a.b/", "c@a.b", "a.b:x", "a.b?", "*.", "*x", "a.*.b", "*.10.0.0.1"],
)
def test_what_is_no_domain(entry: str) -> None:
    with pytest.raises(FlareError) as caught:
        AllowedDomains([entry])
    assert caught.value.field == "allowed_media_domains"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("2002:a00:1::1", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public
