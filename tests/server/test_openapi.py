"""The OpenAPI document is true: generated requests, good and bad, get answers of the documented shapes."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
import schemathesis
from live import MODEL, LiveServer
from schemathesis import checks as built_in

from flare.server import ServerSettings, create_app
from flare.testing.scripted_engine import Script, ScriptedEngine
from flare.testing.tiny_text import tiny_assets

_APP = create_app(
    model_name=MODEL,
    assets=tiny_assets(),
    engine=ScriptedEngine(lambda submit: Script(tokens=[5])),
    settings=ServerSettings(),
)
_DOCUMENT: dict[str, Any] = _APP.openapi()
_SCHEMA = schemathesis.openapi.from_dict(_DOCUMENT)


@_SCHEMA.parametrize()
@hypothesis.settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_generated_requests(case: schemathesis.Case, shared_server: LiveServer) -> None:
    case.call_and_validate(
        base_url=shared_server.url,
        checks=[
            built_in.not_a_server_error,
            built_in.status_code_conformance,
            built_in.content_type_conformance,
            built_in.response_schema_conformance,
            built_in.response_headers_conformance,
            built_in.negative_data_rejection,
        ],
    )


def test_every_route_is_documented_completely() -> None:
    routes = {
        route.path.replace(":path", "")  # type: ignore[attr-defined]
        for route in _APP.routes
        if getattr(route, "include_in_schema", True)
    }
    assert routes - {"/openapi.json"} == set(_DOCUMENT["paths"])
    for path, operations in _DOCUMENT["paths"].items():
        for operation in operations.values():
            assert {"200", "4XX", "5XX"} <= set(operation["responses"]), path
            for answer in operation["responses"].values():
                for content in answer["content"].values():
                    assert content.get("schema") or content.get("itemSchema"), path
    assert "422" not in json.dumps(_DOCUMENT)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
def test_bodies_are_described_without_references(path: str) -> None:
    schema = _DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]

    assert schema["properties"]
    assert "$ref" not in json.dumps(schema)
