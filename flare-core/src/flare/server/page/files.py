"""The files of the page, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

INDEX = "index.html"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """`tag` is the entity tag of `content`, with its quotes."""

    content: bytes
    media_type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By name; a few dozen kilobytes."""
    found = {}
    for file in files("flare.server.page").joinpath("web").iterdir():
        content = file.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[file.name] = PageFile(content, _TYPES[file.name[file.name.rindex(".") :]], tag)
    return MappingProxyType(found)
