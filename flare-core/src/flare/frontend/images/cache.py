"""Prepared images by address: a conversation sends its images again with every turn."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from flare.contract import ImageProfile
from flare.frontend.images.patches import PreparedImage, prepared
from flare.frontend.images.pixels import ImageLimits, decoded
from flare.frontend.images.source import image_bytes

CACHE_BYTES = 256 << 20


class ImageCache:
    """Prepares images of one profile and keeps the least recently used ones within `most_bytes`. Safe to use
    from several threads, which may prepare the same image at the same time."""

    def __init__(
        self, profile: ImageProfile, limits: ImageLimits | None = None, most_bytes: int = CACHE_BYTES
    ) -> None:
        self._profile = profile
        self._limits = limits or ImageLimits()
        self._most_bytes = most_bytes
        self._images: OrderedDict[bytes, PreparedImage] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def get(self, address: str, where: str, fetched: bytes | bytearray | None = None) -> PreparedImage:
        """The image at `address`; what was `fetched` from there may be another one each time. Raises
        RequestError naming `where`."""
        known_by = address.encode() if fetched is None else fetched
        key = hashlib.blake2b(
            known_by, digest_size=16, person=b"" if fetched is None else b"fetched"
        ).digest()
        with self._lock:
            known = self._images.get(key)
            if known is not None:
                self._images.move_to_end(key)
                return known
        content = image_bytes(address, self._limits.most_bytes, where) if fetched is None else fetched
        pixels = decoded(content, self._limits, where, self._profile.background)
        image = prepared(pixels, self._profile, where)
        self._keep(key, image)
        return image

    def _keep(self, key: bytes, image: PreparedImage) -> None:
        with self._lock:
            if key in self._images or len(image.patches) > self._most_bytes:
                return
            self._images[key] = image
            self._nbytes += len(image.patches)
            while self._nbytes > self._most_bytes:
                _, oldest = self._images.popitem(last=False)
                self._nbytes -= len(oldest.patches)
