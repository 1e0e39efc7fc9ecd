"""Threads for work that would hold up the event loop: parsing, templates, tokenization."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from flare.errors import FlareError
from flare.server.settings import ServerSettings

P = ParamSpec("P")
R = TypeVar("R")


class Workers:
    """Two pools, so that megabytes of one client delay no small request of another. A request that is
    cancelled while it waits for a thread never gets one."""

    def __init__(self, settings: ServerSettings) -> None:
        self._bulk_bytes = settings.bulk_body_bytes
        self._small = ThreadPoolExecutor(settings.preparation_threads, thread_name_prefix="flare-prepare")
        self._bulk = ThreadPoolExecutor(1, thread_name_prefix="flare-prepare-bulk")

    async def run(self, size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`work(*args)` on a thread, for a body of `size` bytes. Raises what it raises; of typed errors
        without the way there, whose frames hold everything that was made for the request."""
        pool = self._small if size < self._bulk_bytes else self._bulk

        def call() -> R:
            try:
                return work(*args, **kwargs)
            except FlareError as error:
                # Freed here and not on the event loop, where millions of tokens would take a while.
                error.__traceback__ = error.__cause__ = error.__context__ = None
                raise

        return await asyncio.get_running_loop().run_in_executor(pool, call)
