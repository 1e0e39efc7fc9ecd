"""Calls of tools as functions with parameters between tags, for tests of no model in particular."""

from __future__ import annotations

from flare.contract import TaggedArguments

FUNCTION = TaggedArguments(
    name_start="<function=",
    name_end=">",
    argument_start="<parameter=",
    key_end=">",
    value_end="</parameter>",
    body_end="</function>",
    newlines=True,
)
