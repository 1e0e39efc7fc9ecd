"""Patterns of module names, as quantization configurations write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase


def lineage(module: str) -> Iterator[str]:
    """`module` and everything above it: "a.b.c", "a.b", "a"."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def matches(module: str, pattern: str) -> bool:
    """Whether `pattern` means `module` or something above it: `re:` and a regular expression from the start,
    or a name in which `*` stands for anything."""
    if pattern.startswith("re:"):
        return any(re.match(pattern[3:], name) for name in lineage(module))
    return any(fnmatchcase(name, pattern) for name in lineage(module))


def ends_with(module: str, names: Iterable[str]) -> bool:
    """Whether one of `names` is the end of `module` or of something above it, component by component."""
    found = tuple(lineage(module))
    return any(above == name or above.endswith(f".{name}") for name in names for above in found)
