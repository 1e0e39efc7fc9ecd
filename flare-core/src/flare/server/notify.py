"""Telling systemd how the service is (https://www.freedesktop.org/software/systemd/man/sd_notify.html)."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger("flare.server")


def notify(state: str) -> bool:
    """Send `state` (`READY=1`, `STOPPING=1`) to the service manager; False when none asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall(state.encode())
    except OSError as error:
        logger.warning("the service manager cannot be told %s: %s", state, error)
        return False
    return True
