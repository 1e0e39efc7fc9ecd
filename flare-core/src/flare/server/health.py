"""Liveness and readiness."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import JSONResponse

from flare.engine.interface import EngineClient
from flare.server.documents import documented
from flare.server.errors import RETRY_AFTER_SECONDS
from flare.server.lifetime import Lifetime
from flare.server.schemas import Health


def add_health_routes(app: FastAPI, engine: EngineClient, lifetime: Lifetime) -> None:
    """`/health` is 503 once the engine died: restart the server. `/ready` is 200 while requests are taken."""

    @app.get("/health", response_model=None, responses=documented(Health, {503: Health}))
    async def health() -> JSONResponse:
        return _answer(None if engine.alive else "the engine died")

    @app.get("/ready", response_model=None, responses=documented(Health, {503: Health}))
    async def ready() -> JSONResponse:
        if not engine.alive:
            return _answer("the engine died")
        if lifetime.draining:
            return _answer("the server is shutting down")
        return _answer(None if engine.ready else "the engine is still loading")


def _answer(reason: str | None) -> JSONResponse:
    if reason is None:
        return JSONResponse({"status": "ok"})
    return JSONResponse(
        {"status": "unavailable", "reason": reason}, 503, {"retry-after": str(RETRY_AFTER_SECONDS)}
    )
