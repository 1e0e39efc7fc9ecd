"""A server process whose event loop is watched, for `measure_streams`.

    python tests/server/stream_server.py scripted RATE | engine CORE

It says its port in a line, and answers every line with what was measured since the last: CPU seconds of the
event loop's thread, and the longest that one callback held it, in CPU and in wall seconds. It ends with its
input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent_model import agent_assets, with_context
from live import LiveServer, say
from loop_guard import GUARD
from open_streams import TEXT

from flare.corefile import CoreReader, read_contract
from flare.engine.client import ProcessEngineClient
from flare.frontend import FrontendAssets


def scripted(rate: float) -> LiveServer:
    """A scripted engine that draws `rate` tokens a second for every stream; 0 as fast as it can."""
    server = LiveServer(assets=agent_assets())
    server.engine.script = say(TEXT, delay=1 / rate if rate else 0.0)
    with_context(server, 4096)
    return server


def real(core: Path) -> LiveServer:
    """An engine process."""

    async def start() -> Any:
        return await ProcessEngineClient.start(core)

    with CoreReader(core) as reader:
        frontend = read_contract(reader).frontend
        assert frontend.template_asset is not None
        template = bytes(reader.load(frontend.template_asset)).decode()
        assets = FrontendAssets(frontend, bytes(reader.load(frontend.tokenizer_asset)), template)
    return LiveServer(start_engine=start, assets=assets)


def main() -> None:
    """Command line."""
    kind, value = sys.argv[1:]
    server = scripted(float(value)) if kind == "scripted" else real(Path(value))
    with GUARD.installed(), server:
        clock = server.clock
        print(server.address[1], flush=True)
        used = time.clock_gettime(clock)
        for _ in sys.stdin:
            before, used = used, time.clock_gettime(clock)
            longest = {"hold_cpu_s": GUARD.longest, "hold_wall_s": GUARD.longest_wall}
            GUARD.longest = GUARD.longest_wall = 0.0
            print(json.dumps({"loop_cpu_s": used - before, **longest}), flush=True)


if __name__ == "__main__":
    main()
