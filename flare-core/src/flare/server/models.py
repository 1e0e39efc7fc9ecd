"""`/v1/models`: the one served model."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI

from flare.contract import Frontend
from flare.engine.interface import EngineClient
from flare.server.documents import documented
from flare.server.facts import chat_facts, sampling_facts
from flare.server.jobs import JobFactory
from flare.server.schemas import Model, ModelList


def add_model_routes(
    app: FastAPI, model_name: str, frontend: Frontend, jobs: JobFactory, engine: EngineClient
) -> None:
    """List and retrieve (https://platform.openai.com/docs/api-reference/models). `max_model_len`, in tokens,
    is vLLM's name for the context; null until the engine is ready. What the core says of chats and sampling
    is there before."""
    created = int(time.time())
    facts = {"chat": chat_facts(frontend, jobs.prompts), "sampling": sampling_facts(frontend)}

    def model() -> dict[str, Any]:
        ready = engine.ready
        return {
            "id": model_name,
            "object": "model",
            "created": created,
            "owned_by": "flare",
            "max_model_len": None if ready is None else ready.context,
            **facts,
        }

    @app.get("/v1/models", response_model=None, responses=documented(ModelList))
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model()]}

    @app.get("/v1/models/{name:path}", response_model=None, responses=documented(Model))
    async def retrieve_model(name: str) -> dict[str, Any]:
        jobs.check_model(name)
        return model()
