"""Serves a GPU core where torch cannot be imported, by hand and through the engine process.

usage: tiny_serve.py CORE    prints what came back as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tiny_steps import drive

from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.engine.client import ProcessEngineClient
from flare.engine.messages import Finished, Sampling, Submit, Tokens
from flare.verify import Verification


def torch_is_absent() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return True
    return False


async def collect(client: ProcessEngineClient, request: Submit) -> dict[str, Any]:
    tokens: list[int] = []
    async for event in await client.submit(request):
        if isinstance(event, Tokens):
            tokens += event.tokens
        elif isinstance(event, Finished):
            return {"tokens": tokens, "reason": event.reason, "cached": event.cached_tokens}
    raise AssertionError("a stream without an end")


async def serve(core: Path) -> dict[str, Any]:
    with CoreReader(core) as reader:
        contract = read_contract(reader)
    oracle, defaults = contract.provenance.oracle, contract.frontend.default_sampling
    assert oracle is not None
    sampling = Sampling(
        temperature=oracle.temperature, top_k=defaults.top_k, top_p=defaults.top_p, seed=oracle.seed
    )

    def request(
        name: str, prompt: tuple[int, ...], count: int = 16, endpoints: tuple[int, ...] = ()
    ) -> Submit:
        return Submit(
            request_id=name,
            prompt=prompt,
            sampling=sampling,
            max_tokens=count,
            min_tokens=0 if endpoints else count,
            endpoints=endpoints,
        )

    client = await ProcessEngineClient.start(core)
    try:
        assert client.ready is not None
        result: dict[str, Any] = {"ready_s": client.ready.ready_seconds, "ledger": client.ready.ledger}
        first = request("oracle", oracle.prompt, endpoints=(len(oracle.prompt),))
        result["oracle"] = await collect(client, first)
        result["again"] = await collect(client, request("again", oracle.prompt))
        prompts = [tuple(range(10 + n, 60 + 20 * n)) for n in range(9)]
        many = [collect(client, request(f"r{n}", prompt, 40)) for n, prompt in enumerate(prompts)]
        result["many"] = await asyncio.gather(*many)
        stats = await client.stats()
        result["stats"] = {"step_period_ms": stats.step_period_ms, "device_growth": stats.device_growth}
    finally:
        await client.shutdown()
    return result


def main(core: Path) -> None:
    result = asyncio.run(serve(core))
    with CoreReader(core) as reader:
        device = load_device(read_contract(reader), reader)
        result |= {"driven": drive(device), "torch absent": torch_is_absent(), "frames": device.max_frames}
        device.close()
    verification = Verification(core)
    result["verify"] = verification.run().document()
    verification.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
