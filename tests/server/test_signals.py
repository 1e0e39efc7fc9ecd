"""`serve` in the main thread of a process: signals end it cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PROGRAM = """
import asyncio, signal, sys
sys.path.insert(0, sys.argv[1])
from live import MODEL, chatter, say
from flare.server import ServerSettings, create_app, serve
from flare.testing.scripted_engine import ScriptedEngine
from flare.testing.tiny_text import tiny_assets

async def main():
    engine = ScriptedEngine(chatter(delay=0.02) if sys.argv[2] == "endless" else say("hello"))
    app = create_app(model_name=MODEL, assets=tiny_assets(), engine=engine, settings=ServerSettings())
    await serve(app, port=0, on_started=lambda host, port: print(port, flush=True), grace_seconds=60)
    print("left", engine.running, flush=True)

before = signal.getsignal(signal.SIGTERM)
asyncio.run(main())
assert signal.getsignal(signal.SIGTERM) is before
"""


def start(mode: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{int(process.stdout.readline())}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(number: signal.Signals) -> None:
    process, url = start("brief")
    with httpx.Client(base_url=url) as http:
        assert http.get("/health").status_code == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=10)

    assert (process.returncode, out, err) == (0, "left 0\n", "")


def test_a_second_signal_ends_the_grace() -> None:
    process, url = start("endless")
    body = {"prompt": "x", "stream": True, "max_tokens": 250}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=20) as response:
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        last = [line for line in lines if line][-1]
    out, _ = process.communicate(timeout=10)

    assert "shutting down" in last
    assert (process.returncode, out) == (0, "left 0\n")
