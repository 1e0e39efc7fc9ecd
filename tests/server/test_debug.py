"""`/debug/cache`: only when asked for, and what it shows."""

from __future__ import annotations

import asyncio

import httpx
from live import say
from starlette.testclient import TestClient

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Sampling, Submit
from flare.server import ServerSettings, create_app
from flare.testing.hash_model import HashModel
from flare.testing.scripted_engine import ScriptedEngine
from flare.testing.sim_loader import LOADER, describe
from flare.testing.tiny_text import tiny_assets


def app(engine: object, **settings: bool):
    return create_app(
        model_name="m",
        assets=tiny_assets(),
        engine=engine,  # type: ignore[arg-type]
        settings=ServerSettings(**settings),  # type: ignore[arg-type]
    )


def test_it_is_not_there_unless_switched_on() -> None:
    assert TestClient(app(ScriptedEngine(say("x")))).get("/debug/cache").status_code == 404
    answer = TestClient(app(ScriptedEngine(say("x")), debug_endpoints=True)).get("/debug/cache")
    assert answer.json() == {"type": "cache_report", "total": 0, "checkpoints": []}


def test_checkpoints_of_a_served_request_are_shown() -> None:
    async def main() -> dict:
        engine = await ProcessEngineClient.start(describe(HashModel()), EngineOptions(loader=LOADER))
        try:
            submit = Submit(
                request_id="r", prompt=(1, 2, 3), sampling=Sampling(temperature=1.0, seed=1), max_tokens=4
            )
            async for _ in await engine.submit(submit):
                pass
            transport = httpx.ASGITransport(app(engine, debug_endpoints=True))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                while not (report := (await client.get("/debug/cache")).json())["total"]:
                    await asyncio.sleep(0.01)
            return report
        finally:
            await engine.shutdown(drain=False)

    report = asyncio.run(main())
    (checkpoint,) = report["checkpoints"]
    assert report["total"] == 1
    assert (checkpoint["tokens"], checkpoint["pins"], checkpoint["parent"]) == (6, 0, None)
