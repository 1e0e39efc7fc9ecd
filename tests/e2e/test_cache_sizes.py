"""Pages and snapshot rows are chosen when a core is served."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from flare_run import FlareRun, run_to_end


def gauge(server: FlareRun, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics").text
    found = re.search(rf"^flare:{name}{{.*}} (\S+)$", page, re.MULTILINE)
    assert found is not None, page
    return float(found[1])


def test_the_cache_has_the_chosen_size(tiny_core: Path) -> None:
    with FlareRun(tiny_core, "--cache-tokens", "500", "--snapshot-rows", "1") as server:
        assert (gauge(server, "total_pages"), gauge(server, "free_rows")) == (
            32,
            4 + 1,
        )  # 16 tokens each; four live rows
        prompt = "a" * 100
        answer = server.client().completions.create(model=server.name, prompt=prompt, max_tokens=4)
        assert answer.usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cache-tokens", "100"), "cache-tokens 100 cannot hold one context of 256 tokens"),
        (("--snapshot-rows", "3"), "snapshot-rows 3 exceed the 2 that this core was prepared for"),
        (("--gpu-memory-utilization", "0.5"), "gpu-memory-utilization is for GPUs, this core is for 'cpu'"),
    ],
)
def test_a_size_that_cannot_be_is_said_at_the_start(
    tiny_core: Path, options: tuple[str, ...], message: str
) -> None:
    result = run_to_end("run", tiny_core, "--port", "0", "--threads", "1", *options)
    assert result.returncode == 1
    assert f"flare: {message}" in result.stderr
    assert "Traceback" not in result.stderr
