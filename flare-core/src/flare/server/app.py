"""The HTTP application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from flare import __version__
from flare.engine.interface import EngineClient
from flare.errors import FlareError, UnavailableError
from flare.frontend import FrontendAssets, TokenBytes
from flare.grammar import GrammarChecker
from flare.server.body import read_body
from flare.server.boundary import RequestBoundary
from flare.server.chat import ChatFormat
from flare.server.completions import CompletionFormat
from flare.server.debug import add_debug_routes
from flare.server.documents import body_of, documented
from flare.server.error_shapes import refuse
from flare.server.errors import HTTPError
from flare.server.failures import note_failure
from flare.server.formats import Format
from flare.server.generate import generate
from flare.server.health import add_health_routes
from flare.server.identity import CoreIdentity, add_identity_routes
from flare.server.jobs import Fetched, Job, JobFactory
from flare.server.keys import KeyGuard
from flare.server.lifetime import Lifetime
from flare.server.messages.body import CountRequest, MessagesRequest
from flare.server.messages.format import MessagesFormat
from flare.server.messages.schemas import CountedTokens, Message, MessagesError
from flare.server.metrics import Metrics, add_metrics_route
from flare.server.models import add_model_routes
from flare.server.observer import Observer
from flare.server.page import add_page_routes
from flare.server.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from flare.server.responses.body import ResponsesRequest
from flare.server.responses.format import ResponsesFormat
from flare.server.responses.schemas import Response as ResponseObject
from flare.server.schemas import ChatCompletion, Completion, Detokenized, Tokenized
from flare.server.sessions import Sessions, part_digests, session_of
from flare.server.settings import ServerSettings
from flare.server.tokens import TokenRoutes
from flare.server.unserved import IgnoredFields
from flare.server.wire import json_bytes
from flare.server.workers import Workers

if TYPE_CHECKING:
    from flare.server.remote_images import RemoteImages

T = TypeVar("T")


def create_app(
    *,
    model_name: str,
    assets: FrontendAssets,
    engine: EngineClient,
    settings: ServerSettings,
    core: CoreIdentity | None = None,
) -> FastAPI:
    """OpenAI-compatible endpoints for one model, tokenization, health, readiness, metrics and version.

    `app.state` holds what `flare.server.serve` needs: `lifetime`, drained at shutdown, `grammars`, closed
    then, `settings` and `observer`. Raises CoreError when the core's frontend assets cannot be used.
    """
    app = FastAPI(title="Flare", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    lifetime = app.state.lifetime = Lifetime()
    metrics = Metrics(model_name, engine, core)
    observer = app.state.observer = Observer(metrics.meter)
    app.state.settings = settings
    jobs = JobFactory(model_name, assets, settings, metrics.meter)
    tokens = TokenRoutes(jobs)
    vocabulary = TokenBytes(jobs.tokenizer)
    ignored = IgnoredFields()
    sessions = Sessions()
    workers = Workers(settings)
    grammars = app.state.grammars = GrammarChecker()
    images = _remote_images(settings)

    async def run(body: bytearray, work: Callable[[Fetched], T]) -> T:
        """`work` on a thread, with the images that it wants."""

        def sized(fetched: Fetched) -> Awaitable[T]:
            return workers.run(len(body) + sum(map(len, fetched.values())), work, fetched)

        return await (sized({}) if images is None else images.provide(sized))

    async def respond(
        request: Request, prepare: Callable[[bytearray, int, Fetched], Job], make: type[Format]
    ) -> Response:
        lifetime.check()
        if not engine.alive:
            raise UnavailableError("the engine died")
        if engine.ready is None:
            raise UnavailableError("the engine is still loading")
        body, context = await read_body(request, settings), engine.ready.context
        job = await run(body, lambda fetched: prepare(body, context, fetched))
        if job.constraint is not None:
            await grammars.check(job.constraint)
        ignored.report(request.state.record.id, job.turn.ignored)
        if (session := session_of(request.headers, job.turn)) is not None:
            parts = await workers.run(len(body), part_digests, job.turn)
            sessions.note(session, parts, request.state.record.id)
            for choice in job.choices:
                choice.name_session(session)
        form = make(job, model_name, vocabulary)
        return await generate(request, engine, job, form, settings.stream_keep_alive)

    async def translate(
        request: Request, work: Callable[[bytearray, int | None, Fetched], bytes]
    ) -> Response:
        lifetime.check()
        body = await read_body(request, settings)
        context = None if engine.ready is None else engine.ready.context
        answer = await run(body, lambda fetched: work(body, context, fetched))
        return Response(answer, media_type="application/json")

    @app.post(
        "/v1/chat/completions",
        response_model=None,
        responses=documented(ChatCompletion, stream=True),
        openapi_extra=body_of(ChatRequest),
    )
    async def chat_completions(request: Request) -> Response:
        return await respond(request, jobs.chat, ChatFormat)

    @app.post(
        "/v1/completions",
        response_model=None,
        responses=documented(Completion, stream=True),
        openapi_extra=body_of(CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        def prepare(body: bytearray, context: int, _: Fetched) -> Job:
            return jobs.completion(body, context)

        return await respond(request, prepare, CompletionFormat)

    @app.post(
        "/v1/responses",
        response_model=None,
        responses=documented(ResponseObject, stream=True),
        openapi_extra=body_of(ResponsesRequest),
    )
    async def responses(request: Request) -> Response:
        return await respond(request, jobs.responses, ResponsesFormat)

    @app.post(
        "/v1/messages",
        response_model=None,
        responses=documented(Message, stream=True, error=MessagesError),
        openapi_extra=body_of(MessagesRequest),
    )
    async def messages(request: Request) -> Response:
        return await respond(request, jobs.messages, MessagesFormat)

    @app.post(
        "/v1/messages/count_tokens",
        response_model=None,
        responses=documented(CountedTokens, error=MessagesError),
        openapi_extra=body_of(CountRequest),
    )
    async def count_tokens(request: Request) -> Response:
        def counted(body: bytearray, context: int | None, fetched: Fetched) -> bytes:
            return json_bytes({"input_tokens": jobs.count(body, fetched)})

        return await translate(request, counted)

    @app.post(
        "/tokenize",
        response_model=None,
        responses=documented(Tokenized),
        openapi_extra=body_of(TokenizeRequest),
    )
    async def tokenize(request: Request) -> Response:
        return await translate(request, lambda body, context, _: tokens.tokenize(body, context))

    @app.post(
        "/detokenize",
        response_model=None,
        responses=documented(Detokenized),
        openapi_extra=body_of(DetokenizeRequest),
    )
    async def detokenize(request: Request) -> Response:
        return await translate(request, lambda body, context, _: tokens.detokenize(body, context))

    add_model_routes(app, model_name, assets.frontend, jobs, engine)
    add_health_routes(app, engine, lifetime)
    add_metrics_route(app, metrics)
    add_identity_routes(app, core)
    add_page_routes(app)
    if settings.debug_endpoints:
        add_debug_routes(app, engine)
    app.add_exception_handler(FlareError, _refuse)
    app.add_exception_handler(HTTPException, _refuse)
    # The last one is the outermost.
    if settings.api_keys:
        app.add_middleware(KeyGuard, keys=settings.api_keys)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id"],
        )
    app.add_middleware(
        RequestBoundary, lifetime=lifetime, observer=observer, request_timeout=settings.request_timeout
    )
    app.openapi()  # made once, now: building it takes longer than a request may hold up others
    return app


def _remote_images(settings: ServerSettings) -> RemoteImages | None:
    """None where no host is allowed. Raises FlareError for a domain that is none."""
    if not settings.allowed_media_domains:
        return None
    # Only now: the HTTP client takes a while to import.
    from flare.server.remote_images import AllowedDomains, RemoteImages

    return RemoteImages(
        AllowedDomains(settings.allowed_media_domains),
        most_bytes=settings.max_image_bytes,
        most_together=settings.max_body_bytes,
        timeout=settings.media_timeout,
        at_once=settings.media_fetches,
    )


async def _refuse(request: Request, error: Exception) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        path = request.scope["path"][:200]
        error = HTTPError(error.status_code, f"{request.method} {path!r}: {error.detail}", code=code)
    note_failure(request.state.record, error)
    return refuse(request.scope, error, headers)
