"""The peer's script against an engine whose pace is known: its figures are those of `flare bench`."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peer_vllm
import pytest

from flare.bench import compare
from flare.bench.result import read_result

STEP = 0.002


class PacedEngine:
    """Draws a token per request and step; a prompt longer than a hundred tokens takes a step before. With
    `joined`, two tokens come at once."""

    def __init__(self, joined: int = 1) -> None:
        self.joined = joined
        self.live: dict[str, list[int]] = {}  # steps to wait, tokens drawn, tokens wanted
        self.aborted: list[str] = []

    def add_request(self, name: str, prompt: dict[str, list[int]], tokens: int) -> None:
        self.live[name] = [len(prompt["prompt_token_ids"]) // 100, 0, tokens]

    def has_unfinished_requests(self) -> bool:
        return bool(self.live)

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            self.live.pop(name, None)

    def step(self) -> list[Any]:
        time.sleep(STEP)
        outputs = []
        for name, state in list(self.live.items()):
            if state[0]:
                state[0] -= 1
                continue
            state[1] = min(state[1] + self.joined, state[2])
            finished = state[1] == state[2]
            drawn = SimpleNamespace(token_ids=range(state[1]))
            outputs.append(SimpleNamespace(request_id=name, outputs=[drawn], finished=finished))
            if finished:
                del self.live[name]
        return outputs


@pytest.mark.parametrize("joined", [1, 2])
def test_figures_are_those_of_flare_bench(
    joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_vllm, "OUTPUT", 32)
    monkeypatch.setattr(peer_vllm, "LONG", 1000)
    monkeypatch.setattr(peer_vllm, "_gpus", lambda: ["a GPU"])
    path = tmp_path / "peer.json"
    engine = PacedEngine(joined)
    figures = peer_vllm.Figures(path)
    figures.describe(label="Peer", model="model")
    peer_vllm.measure(SimpleNamespace(llm_engine=engine), lambda tokens: tokens, figures, 2)
    result = read_result(path)
    found = {(name, f.case, f.measure): f for name, s in result.scenarios.items() for f in s.figures}
    total = found["decode", "4 streams", "total"].values
    assert len(total) == 2
    assert all(1 < value <= 4 * joined / STEP for value in total)
    assert found["decode", "1 stream", "inter-token p50"].median >= 1000 * STEP
    # Ten steps of prompt, then the token's own.
    assert found["cold", "1000 tokens", "first token"].median >= 11 * 1000 * STEP
    assert len(found["extend", "with a tail", "first token"].values) == 6
    assert "mixed" in result.scenarios
    assert len(engine.aborted) == 6
    assert {row.name for row in compare(result, result).rows} >= {"decode, 1 stream: total, tok/s"}


def test_a_file_that_is_there_gets_more_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_vllm, "_gpus", lambda: ["a GPU"])
    for value in (1.0, 2.0):
        figures = peer_vllm.Figures(tmp_path / "peer.json")
        figures.describe(label="Peer", model="model")
        figures.add("start", "warm", "ready", value, "s", "lower")
        figures.write()
    (figure,) = read_result(tmp_path / "peer.json").scenarios["start"].figures
    assert figure.values == [1.0, 2.0]
