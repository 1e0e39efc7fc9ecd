"""Entries of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from flare.server.schemas import Error

Responses = dict[int | str, dict[str, Any]]


def documented(
    model: type[BaseModel],
    others: dict[int, type[BaseModel]] | None = None,
    stream: bool = False,
    error: type[BaseModel] = Error,
) -> Responses:
    """Responses of a route: `model` with 200, `others` by status, errors in one shape with the rest."""
    success: dict[str, Any] = {"model": model, "description": "Success"}
    if stream:
        success["content"] = {"text/event-stream": {"itemSchema": _EVENT}}
    responses: Responses = {200: success}
    for status, other in (others or {}).items():
        responses[status] = {"model": other, "description": "Not now"}
    return responses | _errors(error)


def documented_text(media_type: str, description: str) -> Responses:
    """Responses of a route whose success is text."""
    success = {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}
    return {200: success} | _errors(Error)


# Events of a stream (`itemSchema`: OpenAPI 3.2): chunks as JSON text, then `[DONE]`, or an error.
_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "minLength": 1}},
    "required": ["data"],
}


def _errors(shape: type[BaseModel]) -> Responses:
    return {
        "4XX": {"model": shape, "description": "The request is at fault"},
        "5XX": {"model": shape, "description": "The server is at fault, or cannot take the request now"},
    }


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` for a route that reads its body itself; definitions are inlined."""
    schema = model.model_json_schema(mode="validation")
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _inlined(schema, definitions)}},
        }
    }


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(reference := node.get("$ref"), str):
        return _inlined(definitions[reference.rpartition("/")[2]], definitions)
    return {key: _inlined(value, definitions) for key, value in node.items()}
