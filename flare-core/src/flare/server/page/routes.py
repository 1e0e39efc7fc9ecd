"""`/` for browsers and for programs, and the files that the page is made of."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flare import __version__
from flare.server.documents import Responses, documented
from flare.server.page.accept import wants_html
from flare.server.page.files import INDEX, PageFile, page_files
from flare.server.schemas import Root

# What the page may do (https://www.w3.org/TR/CSP3): run and load its own files, talk to this server, show
# images that were given to it. No text becomes markup: the browser refuses `innerHTML` and its like.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked about every time, sent when it is another one: an update of the server is an update of the page.
    "cache-control": "no-cache",
}


def add_page_routes(app: FastAPI) -> None:
    """`/`, which agents probe before they start: who answers, or the page where HTML is wanted. `/page/NAME`.

    None of it needs an API key: the page asks for one when the API does."""
    pages = page_files()

    @app.get("/", response_model=None, responses=_root_responses())
    async def root(request: Request) -> Response:
        if wants_html(request.headers.get("accept", "")):
            return _sent(request, pages[INDEX], {"vary": "accept"})
        return JSONResponse({"server": "flare", "version": __version__}, headers={"vary": "accept"})

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(request: Request, name: str) -> Response:
        if (file := pages.get(name)) is None:
            raise HTTPException(404)
        return _sent(request, file, {})


def _sent(request: Request, file: PageFile, more: dict[str, str]) -> Response:
    headers = {**_HEADERS, **more, "etag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _root_responses() -> Responses:
    responses = documented(Root)
    page: dict[str, Any] = {"text/html": {"schema": {"type": "string"}}}
    responses[200]["content"] = page
    return responses
