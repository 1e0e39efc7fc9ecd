"""The JSON Schema test suite through grammars: what is taken is enforced, what is not is refused by name.

Valid instances are accepted and invalid ones are not, but for the deviations listed here; what a random walk
over the masks writes is valid by a validator that knows nothing of grammars.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from tool_schemas import TOOL_GROUPS

from flare.grammar import GrammarError, json_schema
from flare.grammar.check import _END, byte_vocabulary, problem_of

SUITE = json.loads((Path(__file__).parents[1] / "data" / "json-schema-suite.json").read_text())
GROUPS: list[dict[str, Any]] = [*SUITE["groups"], *TOOL_GROUPS]
DRAFT4 = "http://json-schema.org/draft-04/schema#"

# Valid, and not written by the grammar. None is the other way round: nothing invalid is accepted.
DEVIATIONS = {
    # Members come in the order in which the schema names them, of several parts one after the other.
    "draft4/allOf: allOf: allOf",
    "draft4/allOf: allOf with base schema: valid",
    # A reference without a scheme, which later drafts do not call a URI.
    "draft4/optional/format: validation of URIs: a valid protocol-relative URI",
}
LONGEST_MAILBOX = 64  # characters before the @ (RFC 5321, 4.5.3.1.1), which the grammar does not count
OUTPUTS, LONGEST = 3, 300
METASCHEMA = {"dependencies": {}}  # what a reference to the schema of draft 4 leads to and cannot be served


@cache
def vocabulary() -> LLTokenizer:
    return byte_vocabulary()


def schema_of(group: dict[str, Any]) -> dict[str, Any]:
    """With the draft that it is written for; those of draft 3, which nobody serves, are read as draft 4."""
    if group["group"].startswith("draft"):
        return {"$schema": DRAFT4, **group["schema"]}
    schema: dict[str, Any] = group["schema"]
    return schema


def compiled(schema: dict[str, Any]) -> tuple[str, str | None]:
    """The grammar, and what is wrong with it."""
    try:
        grammar = json_schema(schema, "schema").grammar
    except GrammarError as error:
        return "", str(error)
    return json.dumps({"grammars": [json.loads(grammar)]}), problem_of(grammar, vocabulary())


def validator(schema: dict[str, Any]) -> Any:
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def accepts(grammar: str, instance: Any) -> bool:
    matcher = LLMatcher(vocabulary(), grammar, log_level=0)
    tokens = list(json.dumps(instance, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def walk(grammar: str, rng: random.Random) -> str | None:
    """A random text of the grammar; None when it does not end within bounds."""
    matcher = LLMatcher(vocabulary(), grammar, log_level=0)
    written = bytearray()
    while len(written) < LONGEST:
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        admitted = np.flatnonzero(bits).tolist()
        assert admitted, bytes(written)
        assert (_END in admitted) == matcher.is_accepting()
        closing = [token for token in admitted if token == _END or token in b'"}]']
        token = rng.choice(closing if closing and rng.random() < 0.5 else admitted)
        if token == _END:
            return written.decode()
        assert matcher.consume_token(token)
        written.append(token)
    return None


def test_the_frozen_list_is_the_whole_suite() -> None:
    assert SUITE["package"]["source"] == "json-schema-test-suite 0.0.10"
    assert sum(len(group["cases"]) for group in GROUPS) >= 600


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["group"])
def test_what_is_taken_is_enforced(group: dict[str, Any]) -> None:
    schema = schema_of(group)
    grammar, problem = compiled(schema)
    if problem is not None:
        named = re.findall(r"\$?[A-Za-z]+", problem)
        assert set(named) & (_keywords(schema) | _keywords(METASCHEMA)), problem
        return
    try:
        check = validator(schema)
    except jsonschema_rs.ValidationError:
        assert group["group"].startswith("draft3")  # no schema of draft 4: there is nothing to hold it to
        return
    for description, instance, label in group["cases"]:
        valid = check.is_valid(instance) if group["group"].startswith("draft3") else label
        if f"{group['group']}: {description}" in DEVIATIONS:
            assert valid
            assert not accepts(grammar, instance)
        else:
            assert accepts(grammar, instance) is valid, description
    rng = random.Random(group["group"])
    texts = [text for _ in range(OUTPUTS) if (text := walk(grammar, rng)) is not None]
    for text in texts:
        if "e-mail" in group["group"] and text.find("@") > LONGEST_MAILBOX:
            continue
        assert check.is_valid(json.loads(text)), text


def _keywords(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {name for inner in value.values() for name in _keywords(inner)}
    if isinstance(value, list):
        return {name for inner in value for name in _keywords(inner)}
    return set()


def test_most_schemas_are_taken_and_walks_end() -> None:
    """So that the test above is about something."""
    taken = [
        grammar for group in GROUPS if (made := compiled(schema_of(group)))[1] is None for grammar in made[:1]
    ]
    ended = [walk(grammar, random.Random(1)) is not None for grammar in taken]
    assert len(taken) > 120
    assert sum(ended) > 0.8 * len(ended)
