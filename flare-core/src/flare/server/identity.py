"""What is served: `/version`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from flare import __version__
from flare.server.documents import documented
from flare.server.schemas import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreIdentity:
    """`digest` of the core file, and its `format` version."""

    digest: str
    format: int


def add_identity_routes(app: FastAPI, core: CoreIdentity | None) -> None:
    """`/version` as in vLLM, with the core's identity."""

    @app.get("/version", response_model=None, responses=documented(Version))
    async def version() -> dict[str, Any]:
        found = None if core is None else {"digest": core.digest, "format": core.format}
        return {"version": __version__, "core": found}
