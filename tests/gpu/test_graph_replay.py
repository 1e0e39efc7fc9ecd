"""A captured graph, written to a core, gives the same bits in a process without torch."""

from __future__ import annotations

import re
from typing import Any

import pytest
from small_steps import INPUTS

from flare.device.cuda.layout import DEFAULT_BASE

pytestmark = pytest.mark.gpu
WHERE = pytest.mark.parametrize("where", ["recorded", "relocated"])


def test_what_was_captured(captured: dict[str, Any]) -> None:
    """The graphs hold every form that the export must handle."""
    prefill = captured["graphs"]["prefill"]
    assert {"KernelNode", "CopyNode", "FillNode"} <= set(prefill["kinds"])
    assert prefill["same_name_images"] == 2  # two specialisations of one kernel, told apart
    assert any("triton_" in name for name in prefill["functions"])  # compiled by torch
    assert prefill["images"] > 4
    assert 0 < prefill["programmatic_edges"] < prefill["edges"]  # both kinds in one graph


@WHERE
def test_the_same_bits(captured: dict[str, Any], replays: dict[str, Any], where: str) -> None:
    found = replays[where]
    assert len(set(captured["completions"])) > INPUTS // 2
    assert found["completions"] == captured["completions"]
    assert found["state"] == captured["state"]
    assert not found["torch"]
    assert found["edges"] == [True] * len(captured["graphs"])
    assert found["growth"] == 0
    assert found["least_elapsed_us"] > 0


def test_where_it_ran(captured: dict[str, Any], replays: dict[str, Any]) -> None:
    assert captured["relocation"] == {}
    assert replays["recorded"]["base"] == DEFAULT_BASE
    assert replays["relocated"]["base"] != DEFAULT_BASE


@WHERE
def test_the_ledger(replays: dict[str, Any], where: str) -> None:
    ledger = replays[where]["ledger"]
    assert {"weights", "request_state", "pages", "upload", "completion", "graph_pool"} <= set(ledger)
    assert ledger["context"] > 0
    assert {"modules", "graphs"} <= set(ledger)
    assert ledger["pinned_host"] == 2 * (16 * 4 + 16 * 256 * 4)


def test_one_range_is_for_one_core(replays: dict[str, Any]) -> None:
    assert "not free in this process" in replays["recorded"]["second"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("foreign operand", "GraphExportError: node 0 .*parameter .*memory outside all named buffers"),
        ("foreign copy", "GraphExportError: node 0, copy: .* lie outside all named buffers"),
        ("host copy", "GraphExportError: node 0 copies CU_MEMORYTYPE_"),
        ("growth", "DeviceError: buffer scratch/.* after the arena was frozen"),
    ],
)
def test_refused(captured: dict[str, Any], case: str, message: str) -> None:
    assert re.match(message, captured["refusals"][case]), captured["refusals"][case]
