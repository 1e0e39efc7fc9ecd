"""Clients that leave, at every moment of a request: afterwards nothing is held for them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions
from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Stats
from flare.frontend import FrontendAssets
from flare.server import ServerSettings, create_app, serve

pytestmark = pytest.mark.alone


class InProcess:
    """The server on a thread of this process, so that the engine's statistics can be asked for."""

    def __init__(self, core: Path) -> None:
        self._core = core
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with CoreReader(self._core) as reader:
            frontend = read_contract(reader).frontend
            assert frontend.template_asset is not None
            template = bytes(reader.load(frontend.template_asset)).decode()
            assets = FrontendAssets(frontend, bytes(reader.load(frontend.tokenizer_asset)), template)
        self.client = await ProcessEngineClient.start(self._core, EngineOptions(load=LoadOptions(threads=1)))
        app = create_app(model_name="tiny", assets=assets, engine=self.client, settings=ServerSettings())

        def started(host: str, port: int) -> None:
            self.address = (host, port)
            self._started.set()

        await serve(app, port=0, on_started=started, stop=self._stop, grace_seconds=5)
        await self.client.shutdown()

    def __enter__(self) -> InProcess:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def stats(self) -> Stats:
        return asyncio.run_coroutine_threadsafe(self.client.stats(), self.loop).result(20)

    def wait(self, condition, seconds: float = 30) -> Stats:  # type: ignore[no-untyped-def]
        """The first statistics that satisfy `condition`."""
        deadline = time.monotonic() + seconds
        while not condition(stats := self.stats()):
            assert time.monotonic() < deadline, stats
            time.sleep(0.01)
        return stats

    def open(self, **body: object) -> socket.socket:
        """A connection that has sent a chat request."""
        data = json.dumps({"messages": [{"role": "user", "content": "go on"}], **body}).encode()
        connection = socket.create_connection(self.address, timeout=20)
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(data), data)
        )
        return connection


@pytest.fixture(scope="module")
def server(tiny_core: Path) -> Iterator[InProcess]:
    with InProcess(tiny_core) as server:
        yield server


def everything_free(stats: Stats) -> bool:
    return not stats.running and not stats.waiting and stats.free_pages == stats.total_pages


def descriptors(server: InProcess) -> tuple[int, int]:
    return psutil.Process(os.getpid()).num_fds(), psutil.Process(server.client.pid).num_fds()


def test_after_fifty_disconnects_everything_is_free(server: InProcess) -> None:
    with server.open(max_tokens=2) as first:
        first.recv(1000)
    before = server.wait(everything_free)
    open_before = descriptors(server)
    moments = {"sent": 0, "running": 0, "receiving": 0, "waiting": 0}
    # Admission is blocked for every fifth request by four that hold all slots.
    for number in range(50):
        endless = {"ignore_eos": True, "stream": number % 2 == 0}
        moment = ("sent", "running", "receiving", "waiting", "running")[number % 5]
        if moment == "receiving":
            endless["stream"] = True
        holders = [server.open(**endless) for _ in range(4)] if moment == "waiting" else []
        if holders:
            server.wait(lambda stats: stats.running == 4)
        with server.open(**endless) as connection:
            if moment == "running":
                server.wait(lambda stats: stats.running >= 1)
            elif moment == "waiting":
                server.wait(lambda stats: stats.waiting >= 1)
            elif moment == "receiving":
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
        for holder in holders:
            holder.close()
        moments[moment] += 1

    after = server.wait(everything_free)
    assert (after.free_slots, after.free_pages, after.free_rows) == (
        before.free_slots,
        before.free_pages,
        before.free_rows,
    )
    assert after.free_slots == 4
    assert min(moments.values()) >= 10
    deadline = time.monotonic() + 10
    while descriptors(server) > open_before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors(server) <= open_before


def test_a_request_that_waits_gets_its_slot_when_another_client_leaves(server: InProcess) -> None:
    holders = [server.open(ignore_eos=True, stream=True) for _ in range(4)]
    server.wait(lambda stats: stats.running == 4)
    with server.open(max_tokens=2, stream=True) as waiting:
        server.wait(lambda stats: stats.waiting == 1)
        for holder in holders:
            holder.close()
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")
    server.wait(everything_free)
