"""What people ask who look into a running server. Only there when switched on."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from flare.engine.interface import EngineClient
from flare.server.documents import documented
from flare.server.schemas import CachedPrefixes, StepTimings
from flare.server.wire import json_bytes

_MOST = 1000


def add_debug_routes(app: FastAPI, engine: EngineClient) -> None:
    """`/debug/cache`: the checkpoints used last. `/debug/steps`: where the time of the last steps went. No
    tokens and no text are shown."""

    @app.get("/debug/cache", response_model=None, responses=documented(CachedPrefixes))
    async def cache() -> Response:
        return Response(json_bytes(await engine.cache_report(_MOST)), media_type="application/json")

    @app.get("/debug/steps", response_model=None, responses=documented(StepTimings))
    async def steps(since: int = 0) -> Response:
        return Response(json_bytes(await engine.timeline(since)), media_type="application/json")
