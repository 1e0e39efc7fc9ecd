"""Constraints that are small to write and large to follow, or that reach for what they must not."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _nested(levels: int, wrap: Any) -> Json:
    schema: Json = {"type": "integer"}
    for _ in range(levels):
        schema = wrap(schema)
    return schema


def _doubled(definitions: int, keyword: str) -> Json:
    """2 ** `definitions` schemas, written once each."""
    made: Json = {"d0": {"type": "integer"}}
    for number in range(1, definitions):
        ref = {"$ref": f"#/$defs/d{number - 1}"}
        if keyword == "properties":
            made[f"d{number}"] = {
                "type": "object",
                "properties": {"a": ref, "b": ref},
                "required": ["a", "b"],
            }
        else:
            made[f"d{number}"] = {keyword: [ref, {"type": "array", "items": ref}]}
    return {"$defs": made, "$ref": f"#/$defs/d{definitions - 1}"}


def _text(pattern: str) -> Json:
    return {"type": "string", "pattern": pattern}


SCHEMAS: dict[str, Json] = {
    "objects, 60 deep": _nested(30, lambda inner: {"type": "object", "properties": {"a": inner}}),
    "objects, 400 deep": _nested(200, lambda inner: {"type": "object", "properties": {"a": inner}}),
    "arrays, 400 deep": _nested(400, lambda inner: {"type": "array", "items": inner}),
    "alternatives inside alternatives": _nested(12, lambda s: {"anyOf": [s, {"type": "array", "items": s}]}),
    "a hundred thousand values": {"enum": [f"value {i}" for i in range(100_000)]},
    "five thousand values": {"enum": [f"value {i}" for i in range(5_000)]},
    "a value of a megabyte": {"const": "x" * 1_000_000},
    "a value of sixty kilobytes": {"const": "x" * 60_000},
    "a name of sixty kilobytes": {"properties": {"x" * 60_000: {}}},
    "three thousand names": {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(3_000)},
    },
    "three thousand needed names": {
        "type": "object",
        "properties": {f"p{i}": {} for i in range(3_000)},
        "required": [f"p{i}" for i in range(3_000)],
    },
    "a value nested in lists": {"const": [[[1]] * 500] * 50},
    "repetition inside repetition": _text("^(a+)+$"),
    "a thousand times a thousand": _text("(a{1,1000}){1,1000}"),
    "hundreds of hundreds of hundreds": _text("((a{1,100}){1,100}){1,100}"),
    "letters by the thousand": _text(r"^(\p{L}{1,500}\s?){1,500}$"),
    "states by the billion": _text("(a|b)*a(a|b){30}"),
    "a long way back": _text(".*a.{1000}"),
    "many ways to split": _text("^((a|b)*c(a|b)*){20}$"),
    "look-around": _text("(?=a)b"),
    "not closed": _text("(a"),
    "itself": {"$ref": "#"},
    "each other": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "itself and more": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {}]}}, "$ref": "#/$defs/a"},
    "an object that needs itself": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "ten million items": {"type": "array", "minItems": 10_000_000},
    "more items than can be counted": {"type": "array", "minItems": 1 << 62},
    "a million lists of a million": {
        "type": "array",
        "items": {"type": "array", "maxItems": 1_000_000},
        "maxItems": 1_000_000,
    },
    "a billion characters": {"type": "string", "maxLength": 1_000_000_000},
    "at least a billion characters": {"type": "string", "minLength": 1_000_000_000},
    "a million members": {"type": "object", "minProperties": 1_000_000},
    "another server": {"$ref": "http://127.0.0.1:9/schema.json"},
    "a file": {"$ref": "file:///etc/passwd"},
    "no such definition": {"$ref": "#/$defs/none"},
    "objects doubled 60 times": _doubled(60, "properties"),
    "alternatives doubled 40 times": _doubled(40, "anyOf"),
    "parts doubled 40 times": _doubled(40, "allOf"),
    "multiples of a large prime": {"type": "integer", "multipleOf": 982_451_653},
    "multiples of many primes": {
        "allOf": [{"type": "integer", "multipleOf": m} for m in (97, 89, 83, 79, 73)]
    },
    "the whole range of floats": {"type": "number", "minimum": 1e-308, "maximum": 1.7e308},
    "twenty thousand places": {"type": "array", "prefixItems": [{}] * 20_000},
    "options of the compiler": {"x-guidance": {"lenient": True}, "not": {}},
    "a number for a keyword": {"properties": 5},
    "half a surrogate pair": {"const": "\ud800"},
}
