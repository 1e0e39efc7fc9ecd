"""The HTTP application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from flare.engine.interface import EngineClient
from flare.errors import FlareError, UnavailableError
from flare.frontend import FrontendAssets, TokenBytes
from flare.server.body import read_body
from flare.server.boundary import RequestBoundary
from flare.server.chat import ChatFormat
from flare.server.completions import CompletionFormat
from flare.server.errors import RETRY_AFTER_SECONDS, HTTPError, error_body, log_text, status_of
from flare.server.formats import Format
from flare.server.health import add_health_routes
from flare.server.jobs import Job, JobFactory
from flare.server.lifetime import Lifetime
from flare.server.models import add_model_routes
from flare.server.requests import ChatRequest, CompletionRequest
from flare.server.responses import generate
from flare.server.settings import ServerSettings
from flare.server.unserved import IgnoredFields
from flare.server.wire import json_bytes

logger = logging.getLogger("flare.server")


def create_app(
    *, model_name: str, assets: FrontendAssets, engine: EngineClient, settings: ServerSettings
) -> FastAPI:
    """OpenAI-compatible endpoints for one model, plus health and readiness.

    `app.state.lifetime` is the `Lifetime` that `flare.server.serve` drains at shutdown. Raises CoreError when
    the core's frontend assets cannot be used.
    """
    app = FastAPI(title="Flare", docs_url=None, redoc_url=None)
    lifetime = app.state.lifetime = Lifetime()
    jobs = JobFactory(model_name, assets, settings)
    vocabulary = TokenBytes(jobs.tokenizer)
    ignored = IgnoredFields()
    workers = ThreadPoolExecutor(settings.preparation_threads, thread_name_prefix="flare-prepare")

    async def respond(request: Request, prepare: Callable[[bytes, int], Job], form: type[Format]) -> Response:
        lifetime.check()
        if not engine.alive:
            raise UnavailableError("the engine died")
        if engine.ready is None:
            raise UnavailableError("the engine is still loading")
        body = await read_body(request, settings.max_body_bytes)
        job = await asyncio.get_running_loop().run_in_executor(workers, prepare, body, engine.ready.context)
        ignored.report(request.state.request_id, job.ignored)
        return await generate(request, engine, job, form(job, model_name, vocabulary))

    @app.post("/v1/chat/completions", response_model=None, openapi_extra=_body_schema(ChatRequest))
    async def chat_completions(request: Request) -> Response:
        return await respond(request, jobs.chat, ChatFormat)

    @app.post("/v1/completions", response_model=None, openapi_extra=_body_schema(CompletionRequest))
    async def completions(request: Request) -> Response:
        return await respond(request, jobs.completion, CompletionFormat)

    add_model_routes(app, model_name, jobs, engine)
    add_health_routes(app, engine, lifetime)
    app.add_exception_handler(FlareError, _refuse)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_middleware(RequestBoundary, lifetime=lifetime)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        error = HTTPError(
            error.status_code, f"{request.method} {request.url.path}: {error.detail}", code=code
        )
    status = status_of(error)
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    level = logging.INFO if status < 500 else logging.ERROR
    code = error.code if isinstance(error, FlareError) else "error"
    logger.log(
        level,
        "request %s: failed before the response: %s: %s",
        request.state.request_id,
        code,
        log_text(error),
    )
    return Response(json_bytes(error_body(error)), status, headers, "application/json")


def _body_schema(model: type[ChatRequest] | type[CompletionRequest]) -> dict[str, Any]:
    schema = model.model_json_schema(mode="validation")
    definitions = schema.pop("$defs", {})
    schema["properties"]["stream_options"] = definitions["StreamOptions"]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
