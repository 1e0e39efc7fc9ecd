"""Schemas as agents and client libraries write them, with instances that are valid or not."""

from __future__ import annotations

from typing import Any

_EDIT = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "absolute path", "minLength": 1},
        "old": {"type": "string"},
        "new": {"type": "string"},
        "all": {"type": "boolean", "default": False},
    },
    "required": ["path", "old", "new"],
    "additionalProperties": False,
}
_SEARCH = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 20},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "kinds": {"type": "array", "items": {"enum": ["file", "symbol"]}, "minItems": 1, "maxItems": 2},
        "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["query", "limit", "kinds", "since"],
    "additionalProperties": False,
}
_TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]{1,4}$"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
_UNION = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["kind", "r"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "point"}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    ]
}
_PLACES = {
    "type": "array",
    "prefixItems": [{"type": "string"}, {"type": "integer"}],
    "items": False,
    "minItems": 2,
}

TOOL_GROUPS: list[dict[str, Any]] = [
    {
        "group": "tools: edit",
        "schema": _EDIT,
        "cases": [
            ["whole", {"path": "/a", "old": "", "new": 'é"\n'}, True],
            ["optional", {"path": "/a", "old": "x", "new": "y", "all": True}, True],
            ["missing", {"path": "/a", "old": "x"}, False],
            ["empty path", {"path": "", "old": "x", "new": "y"}, False],
            ["more", {"path": "/a", "old": "x", "new": "y", "z": 1}, False],
            ["type", {"path": "/a", "old": 1, "new": "y"}, False],
        ],
    },
    {
        "group": "tools: search",
        "schema": _SEARCH,
        "cases": [
            ["whole", {"query": "q", "limit": 50, "kinds": ["file"], "since": None}, True],
            ["date", {"query": "q", "limit": 1, "kinds": ["file", "symbol"], "since": "2026-02-28"}, True],
            ["no date", {"query": "q", "limit": 1, "kinds": ["file"], "since": "yesterday"}, False],
            ["too many", {"query": "q", "limit": 51, "kinds": ["file"], "since": None}, False],
            ["too few", {"query": "q", "limit": 1, "kinds": [], "since": None}, False],
            ["no kind", {"query": "q", "limit": 1, "kinds": ["dir"], "since": None}, False],
            ["too long", {"query": "q" * 21, "limit": 1, "kinds": ["file"], "since": None}, False],
        ],
    },
    {
        "group": "tools: tree",
        "schema": _TREE,
        "cases": [
            ["leaf", {"name": "a", "children": []}, True],
            [
                "deep",
                {"name": "a", "children": [{"name": "b", "children": [{"name": "c", "children": []}]}]},
                True,
            ],
            ["wide", {"name": "a", "children": [{"name": "b", "children": []}] * 3}, False],
            ["wrong below", {"name": "a", "children": [{"name": "B", "children": []}]}, False],
        ],
    },
    {
        "group": "tools: union",
        "schema": _UNION,
        "cases": [
            ["circle", {"kind": "circle", "r": 0.5}, True],
            ["point", {"kind": "point"}, True],
            ["no radius", {"kind": "circle"}, False],
            ["zero", {"kind": "circle", "r": 0}, False],
            ["other", {"kind": "square"}, False],
        ],
    },
    {
        "group": "tools: places",
        "schema": _PLACES,
        "cases": [
            ["two", ["a", 1], True],
            ["one", ["a"], False],
            ["three", ["a", 1, 2], False],
            ["order", [1, "a"], False],
        ],
    },
]
