"""IP addresses: where a host is, and whether that is on the public network."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses behind a NAT64 (RFC 6052)."""


async def resolved(host: str, port: int, threads: Executor) -> list[str]:
    """The IP addresses of `host`, in the order to try them. Raises OSError when there are none."""
    found = await asyncio.get_running_loop().run_in_executor(
        threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether `address` is one of the public network, also when it stands for an IPv4 address: not loopback,
    private, link-local, multicast or reserved (the registries of IANA, as Python's `ipaddress` has them)."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    inner = _inner(parsed)
    if inner is not None:
        return is_public(inner.compressed)
    return parsed.is_global and not parsed.is_multicast


def _inner(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
