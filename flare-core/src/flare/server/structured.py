"""Structured output as clients ask for it: `response_format` of the OpenAI API, and vLLM's fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from flare.errors import RequestError
from flare.frontend import UnsupportedError
from flare.grammar import Constraint, GrammarError, any_object, choice, json_schema, lark, regex
from flare.grammar.bounds import check_size
from flare.server.requests import GenerationRequest, JsonSchemaFormat, ResponseFormat, StructuredOutputs

Maker = Callable[[], Constraint]


def constraint_of(request: GenerationRequest, form_field: str = "response_format") -> Constraint | None:
    """What the answer must look like; None when the request leaves it open. `form_field` is where the client
    has its `response_format`.

    Raises GrammarError for a constraint that is too large or malformed, UnsupportedError for kinds that are
    not served, RequestError for two constraints and for parameters that contradict one.
    """
    asked = list(_asked(request, form_field))
    if not asked:
        return None
    if len(asked) > 1:
        (first, _), (second, _), *_ = asked
        raise RequestError(f"{first} and {second} both constrain the answer; give one of them", field=second)
    where = asked[0][0]
    if request.ignore_eos:
        raise RequestError(f"ignore_eos and {where} contradict each other", field="ignore_eos")
    if request.min_tokens:
        raise RequestError(f"min_tokens and {where} contradict each other", field="min_tokens")
    return asked[0][1]()


def _asked(request: GenerationRequest, form_field: str) -> Iterator[tuple[str, Maker]]:
    """The constraints of a request, by field; made when they are called."""
    if request.response_format is not None and request.response_format.type != "text":
        form = request.response_format
        yield form_field, lambda: _formatted(form, form_field)
    if request.structured_outputs is not None:
        yield from _structured("structured_outputs.", request.structured_outputs)
    yield from _structured(
        "guided_",
        StructuredOutputs(
            json=request.guided_json,
            regex=request.guided_regex,
            choice=request.guided_choice,
            grammar=request.guided_grammar,
            whitespace_pattern=request.guided_whitespace_pattern,
        ),
    )


def _formatted(form: ResponseFormat, where: str) -> Constraint:
    if form.type == "json_object":
        return any_object(where)
    if form.type != "json_schema":
        raise UnsupportedError(
            f"{where}.type {form.type[:100]!r} is not supported by this server", field=where
        )
    if where == "response_format":  # elsewhere the schema stands one level higher
        where = "response_format.json_schema"
    if form.json_schema is None or form.json_schema.schema_ is None:
        raise RequestError(f"{where}.schema is missing", field=where)
    return json_schema(form.json_schema.schema_, f"{where}.schema")


def flat_format(form: dict[str, Any] | None) -> ResponseFormat | None:
    """A `response_format` whose schema stands beside its type, as other protocols have it."""
    if form is None:
        return None
    schema = JsonSchemaFormat(schema=form["schema"]) if "schema" in form else None
    return ResponseFormat(type=str(form.get("type")), json_schema=schema)


def _structured(prefix: str, asked: StructuredOutputs) -> Iterator[tuple[str, Maker]]:
    for name, value in (asked.model_extra or {}).items():
        if value not in (None, False, "", [], {}):
            raise UnsupportedError(
                f"{prefix}{name[:100]} is not supported by this server", field=f"{prefix}{name}"
            )
    if (schema := asked.json_) is not None:
        yield (
            f"{prefix}json",
            lambda: json_schema(
                _schema(schema, f"{prefix}json"),
                f"{prefix}json",
                whitespace=not asked.disable_any_whitespace,
                whitespace_pattern=asked.whitespace_pattern,
            ),
        )
    if asked.json_object:
        yield f"{prefix}json_object", lambda: any_object(f"{prefix}json_object")
    if (pattern := asked.regex) is not None:
        yield f"{prefix}regex", lambda: regex(pattern, f"{prefix}regex")
    if (choices := asked.choice) is not None:
        yield f"{prefix}choice", lambda: choice(choices, f"{prefix}choice")
    if (grammar := asked.grammar) is not None:
        yield f"{prefix}grammar", lambda: lark(grammar, f"{prefix}grammar")


def _schema(schema: Any, where: str) -> Any:
    """vLLM takes schemas as text as well."""
    if not isinstance(schema, str):
        return schema
    check_size(schema, where)
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{where} is not valid JSON: {error}", field=where) from None
