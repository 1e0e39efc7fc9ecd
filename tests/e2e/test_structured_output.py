"""A core of a real form, prepared and served: random weights write what the schema demands."""

from __future__ import annotations

import json

import httpx
import jsonschema_rs
from flare_run import FlareRun

SCHEMA = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "pattern": "^[a-z]{2,6}$"},
        "count": {"type": "integer", "minimum": 10, "maximum": 99},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["word", "count", "kind"],
    "additionalProperties": False,
}


def ask(served: FlareRun, **fields: object) -> dict:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 120, **fields}
    response = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    choice: dict = response.json()["choices"][0]
    return choice


def test_answers_of_random_weights_are_valid(served: FlareRun) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    for seed in range(3):
        choice = ask(served, response_format=form, seed=seed, temperature=1.5)
        assert choice["finish_reason"] == "stop"
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(choice["message"]["content"]))


def test_bias_and_penalties_do_not_admit_what_the_grammar_forbids(served: FlareRun) -> None:
    """Every token of a forbidden text gets the largest bias, and every admitted one is punished."""
    tokenized = httpx.post(
        f"{served.url}/tokenize", json={"prompt": "zq", "add_special_tokens": False}, timeout=60
    )
    bias = {str(token): 100 for token in tokenized.json()["tokens"]}
    for seed in range(3):
        choice = ask(
            served,
            guided_choice=["yes yes yes", "no no no"],
            seed=seed,
            logit_bias=bias,
            presence_penalty=2,
            frequency_penalty=2,
            logprobs=True,
        )
        assert choice["message"]["content"] in ("yes yes yes", "no no no")
        assert choice["finish_reason"] == "stop"
        # Of the model's own distribution: what was forced is not certain.
        assert any(entry["logprob"] < -0.5 for entry in choice["logprobs"]["content"])
