"""Run the command-line agents, each for a task of two commands; see `scripts/agent-check`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from agent_clients import CLIENTS, AgentClient
from agent_model import agent_assets, with_context
from agent_recording import Recorded, Recorder, without_texts
from fastapi import FastAPI
from live import LiveServer
from two_tools import COMMANDS, DONE, RESULTS, two_tools

FIXTURES = Path(__file__).parent.parent / "data" / "agents"
SECONDS = 180


def install(folder: Path) -> Path:
    """The folder of programs, with the pinned packages from the npm registry."""
    wanted = [f"{client.package}@{client.version}" for client in CLIENTS]
    stamp = folder / "installed.json"
    if not stamp.is_file() or json.loads(stamp.read_text()) != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *wanted], check=True)
        stamp.write_text(json.dumps(wanted))
    return folder / "node_modules" / ".bin"


def run(client: AgentClient, programs: Path, record: bool) -> None:
    """One task of one client. Raises AssertionError when it is not finished."""
    recorded: list[Recorded] = []
    node = Path(shutil.which("node") or "node").parent

    def record_all(app: FastAPI) -> None:
        app.add_middleware(Recorder, requests=recorded)

    with (
        LiveServer(assets=agent_assets(), change_app=record_all) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        with_context(server, 400_000)
        server.engine.script = two_tools
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        work.mkdir()
        environment = {"HOME": str(home), "PATH": f"{programs}:{node}:/usr/bin:/bin"}
        environment |= client.prepare(server.url, home, work)
        done = subprocess.run(
            client.command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert f"{DONE} {' '.join(RESULTS)}" in output, output
        requests = [request for request in recorded if request.body is not None]
        turns = [request for request in requests if request.body.get("tools")]
        assert len(turns) == len(COMMANDS) + 1, [request.path for request in recorded]
        print(f"{client.name} {client.version}: {len(turns)} turns, {len(json.dumps(turns[0].body)):,} bytes")
        if record:
            FIXTURES.mkdir(parents=True, exist_ok=True)
            kept = [{**asdict(turn), "body": without_texts(turn.body)} for turn in turns]
            path = FIXTURES / f"{client.name}-{client.version}.json"
            path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep what the clients send as fixtures")
    parser.add_argument("clients", nargs="*", default=[client.name for client in CLIENTS])
    options = parser.parse_args()
    cache = Path(os.environ.get("FLARE_CACHE", Path.home() / ".cache" / "flare")) / "agents"
    programs = install(cache)
    for client in CLIENTS:
        if client.name in options.clients:
            run(client, programs, options.record)


if __name__ == "__main__":
    main()
