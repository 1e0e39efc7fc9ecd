"""`flare run --disk-cache`: a conversation goes on after a restart as if there had been none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from flare_run import FlareRun, run_to_end

PROMPT = [random.Random(1).randrange(5, 200) for _ in range(83)]
SUFFIX = [9, 8, 7, 6, 5]


def ask(server: FlareRun, prompt: list[int], max_tokens: int):
    with server.client() as client:
        response = client.completions.create(
            model=server.name,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=0.5,
            seed=7,
            logprobs=5,
            extra_body={"ignore_eos": True},
        )
    details = response.usage.prompt_tokens_details
    return response.choices[0].logprobs, 0 if details is None else details.cached_tokens


def test_turn_two_after_a_restart_has_the_same_bits(tiny_core: Path, tmp_path: Path) -> None:
    options = ("--host-cache", "64M", "--disk-cache", str(tmp_path / "cache"), "--disk-cache-size", "100M")
    with FlareRun(tiny_core, *options) as server:
        assert ask(server, PROMPT, 1)[1] == 0
        before, cached = ask(server, PROMPT + SUFFIX, 8)
        assert cached == len(PROMPT)
        server.terminate()
        assert server.wait() == (0, "")
        assert server.errors() == ""
    with FlareRun(tiny_core, *options) as server:
        after, cached = ask(server, PROMPT + SUFFIX, 8)
        assert cached == len(PROMPT)
        assert after == before
        server.terminate()
        assert server.wait() == (0, "")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--host-cache", "much"), "'much' is not a size"),
        (("--disk-cache-size", "4G"), "--disk-cache-size without --disk-cache"),
        (("--host-cache", "1K"), "a host cache of 1024 bytes holds no checkpoint of this core"),
    ],
)
def test_sizes_that_cannot_work_are_refused_at_start(tiny_core: Path, options, complaint: str) -> None:
    run = run_to_end("run", tiny_core, "--port", "0", *options)
    assert run.returncode == 1
    assert complaint in run.stderr
    assert "Traceback" not in run.stderr
