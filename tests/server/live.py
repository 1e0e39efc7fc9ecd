"""A real server on a free loopback port, in a thread, in front of a scripted engine or a real one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from loop_guard import GUARD

from flare.engine.interface import EngineClient
from flare.engine.messages import Submit
from flare.frontend import FrontendAssets, Tokenizer
from flare.server import CoreIdentity, ServerSettings, create_app, serve
from flare.testing.scripted_engine import Counters, Script, ScriptedEngine
from flare.testing.tiny_text import tiny_assets, tiny_tokenizer

MODEL = "tiny/chat"
END = 2
TOKENIZER = Tokenizer(tiny_tokenizer().to_str().encode())
CONTEXT = 256


def say(text: str, **options: Any) -> Callable[[Submit], Script]:
    """Answer every request with `text` and the end of the message."""
    script = Script(tokens=[*TOKENIZER.encode(text), END], **options)
    return lambda submit: script


def chatter(**options: Any) -> Callable[[Submit], Script]:
    """Answer with tokens that never end by themselves."""
    script = Script(tokens=TOKENIZER.encode("la "), **options)
    return lambda submit: script


class LiveServer:
    """Use as a context. `engine` lives on the server's loop: change it through `call`."""

    def __init__(
        self,
        settings: ServerSettings | None = None,
        assets: FrontendAssets | None = None,
        grace_seconds: float = 5.0,
        start_engine: Callable[[], Awaitable[EngineClient]] | None = None,
        core: CoreIdentity | None = None,
        change_app: Callable[[FastAPI], None] = lambda app: None,
    ) -> None:
        self._core = core
        self._change_app = change_app
        self._start_engine = start_engine
        self._settings = settings or ServerSettings()
        self._assets = assets or tiny_assets()
        self._grace_seconds = grace_seconds
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.engine = ScriptedEngine(say("hello"), context=CONTEXT)
        self.starts: list[tuple[str, int]] = []

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        client = self.engine if self._start_engine is None else await self._start_engine()
        app = create_app(
            model_name=MODEL, assets=self._assets, engine=client, settings=self._settings, core=self._core
        )

        self._change_app(app)

        def started(host: str, port: int) -> None:
            GUARD.watch(self.loop)
            self.starts.append((host, port))
            self._started.set()

        await serve(app, port=0, on_started=started, grace_seconds=self._grace_seconds, stop=self._stop)

    def __enter__(self) -> LiveServer:
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.call(self._stop.set)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def address(self) -> tuple[str, int]:
        return self.starts[0]

    @property
    def clock(self) -> int:
        """Clock of the CPU time that the event loop's thread used."""
        assert self._thread.ident is not None
        return time.pthread_getcpuclockid(self._thread.ident)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://{host}:{port}"

    def call(self, action: Callable[[], Any]) -> None:
        """Run `action` on the server's loop and wait for it."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def reset(self) -> None:
        """A fresh script and fresh counters, when the last test's requests have ended."""
        self.wait(lambda: self.engine.running == 0)

        def fresh() -> None:
            self.engine.script = say("hello")
            self.engine.counters = Counters()

        self.call(fresh)

    def wait(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Return when `condition` holds; fail when it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not in {seconds} s: {self.engine.counters}"
            time.sleep(0.005)

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(self.address, timeout=10)


def raw_post(path: str, body: bytes) -> bytes:
    """The bytes of a POST request."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
