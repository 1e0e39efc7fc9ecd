"""What two strangers do at once with the wheels that `scripts/test-wheels` installed: one follows the recipe
tutorial to its end, the other serves the example recipe. Run with the directory that holds `venv`; nothing of
Flare is imported here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tutorial import commands

_READY = re.compile(r"flare: (?P<name>\S+) ready on (?P<url>http://\S+) in [0-9.]+ s\n")

# Every module of Flare that the product and the tools of recipe authors load must come from the wheels.
_MODULES = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
loaded = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("flare")}
print(json.dumps(loaded))
"""
_ROOMS = (
    "flare.cli flare.authoring flare.bench flare.engine.process flare.server flare.prepare.run "
    "flare.testing.plugin flare.testing.recipe_check flare.testing.tiny_core flare_components.serving "
    "flare_recipe_glm.recipe flare_recipe_qwen.recipe flare_recipe_smollm.recipe flare_recipe_my_model.recipe"
)


class Stranger:
    """Runs commands in the new directory `place/name` with the environment `place/venv`."""

    def __init__(self, place: Path, name: str) -> None:
        self.name = name
        self.venv = place / "venv"
        self.directory = place / name
        self.directory.mkdir()
        self.log = place / f"{name}.log"  # of the last server
        self.environment = {**os.environ, "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}"}
        self.server: subprocess.Popen[str] | None = None
        self.url = ""

    def run(self, command: str) -> str:
        """Standard output of a shell command, which must succeed."""
        started = time.monotonic()
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.say(f"{time.monotonic() - started:5.1f} s  {command.splitlines()[0][:80]}")
        if result.returncode != 0:
            sys.exit(f"exit status {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
        return result.stdout

    def say(self, line: str) -> None:
        """Report progress."""
        print(f"  {self.name}: {line}", flush=True)

    def serve(self, command: str) -> None:
        """Start `flare run ...` on a free port and wait until it is ready."""
        self.server = subprocess.Popen(
            [*command.split(), "--port", "0"],
            executable=self.venv / "bin" / "flare",
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
        )
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        ready = _READY.fullmatch(line)
        if ready is None:
            sys.exit(f"{command}: not a ready line: {line!r}\n{self.log.read_text()}")
        self.url = ready["url"]
        self.say(line.strip())

    def stop(self) -> None:
        """End the server as a service manager does; it must agree."""
        if self.server is not None:
            self.server.terminate()
            status = self.server.wait(timeout=60)
            self.server = None
            assert status == 0, f"flare run ended with status {status}"

    def kill(self) -> None:
        """End a server that is left after a failure."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def ask(self) -> dict[str, Any]:
        """A chat completion over HTTP."""
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "model": self._model()}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def _model(self) -> str:
        with urllib.request.urlopen(f"{self.url}/v1/models", timeout=60) as response:
            return str(json.load(response)["data"][0]["id"])

    def check_answer(self) -> None:
        """The completion has the shape of the API and counts what was drawn."""
        answer = self.ask()
        (choice,) = answer["choices"]
        assert choice["message"]["role"] == "assistant", answer
        assert choice["finish_reason"] in ("length", "stop"), answer
        assert 1 <= answer["usage"]["completion_tokens"] <= 8, answer
        self.say(f"answer: {choice['message']['content']!r}")

    def check_page(self) -> None:
        """The page for browsers is there, with every file that it asks for."""
        html = self.fetch("/")
        files = re.findall(r'(?:src|href)="(page/[^"]+)"', html)
        assert "page/main.js" in files, html
        for file in files:
            assert self.fetch(f"/{file}"), file

    def fetch(self, path: str) -> str:
        """What a browser gets."""
        request = urllib.request.Request(self.url + path, headers={"Accept": "text/html,*/*;q=0.8"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(response.read().decode())


def follow_tutorial(stranger: Stranger) -> None:
    """Every command of the tutorial, in order; the package is installed from a wheel instead of in place."""
    for command in commands():
        if command.startswith("cd "):
            stranger.directory /= command.removeprefix("cd ")
        elif command.startswith("pip install"):
            # The clean environment has no build backend; that is no part of what a stranger needs.
            build = f"{sys.executable} -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist ."
            stranger.run(build)
            stranger.run("pip install --quiet --no-index dist/*.whl && rm -r dist")
            # What is run from here on must be the wheel.
            shutil.move(stranger.directory / "src", stranger.directory / "moved")
        elif command.startswith("flare run"):
            stranger.serve(command)
        elif command.startswith("flare chat"):
            stranger.run(f"{command} --url {stranger.url}")
        else:
            stranger.run(command)
    stranger.check_answer()
    stranger.stop()


def use_example(stranger: Stranger) -> None:
    """The example recipe, on its tiny checkpoint instead of the published one."""
    write = "from flare_recipe_smollm.recipe import RECIPE as r; r.oracle.tiny_checkpoint(Path('tiny'))"
    stranger.run(f'python -c "from pathlib import Path; {write}"')
    stranger.run("flare prepare smollm2-135m --checkpoint tiny -o example.core.safetensors")
    stranger.serve("flare run example.core.safetensors")
    stranger.check_answer()
    stranger.check_page()
    stranger.stop()


def check_installation(stranger: Stranger) -> None:
    """All recipes are found, and every module comes from the clean environment."""
    rows = json.loads(stranger.run("flare recipes --json"))
    status = {row["name"]: row["status"] for row in rows}
    models = ("glm-5.3-flash", "my-model-tiny", "qwen3.8-flash", "smollm2-135m")
    assert status == dict.fromkeys(models, "ok"), rows
    (stranger.directory / "modules.py").write_text(_MODULES)
    loaded = json.loads(stranger.run(f"python modules.py {_ROOMS}"))
    outside = {name: file for name, file in loaded.items() if not str(file).startswith(f"{stranger.venv}/")}
    assert len(loaded) > 100 and not outside, (len(loaded), outside)  # noqa: PT018


def main() -> None:
    """Exit status 0 when everything worked."""
    started = time.monotonic()
    place = Path(sys.argv[1])
    author, user = Stranger(place, "author"), Stranger(place, "user")
    try:
        with ThreadPoolExecutor(2) as pool:
            for job in [pool.submit(follow_tutorial, author), pool.submit(use_example, user)]:
                job.result()
        check_installation(author)
    finally:
        author.kill()
        user.kill()
    print(f"The wheels work: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
