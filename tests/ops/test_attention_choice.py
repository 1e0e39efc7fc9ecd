"""Which kernel runs decode attention: what FlashInfer's takes, how it is compared, what is said when it is
missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
GPU_TESTS = str(Path(__file__).parents[1] / "gpu")
sys.path.append(GPU_TESTS)
from attention_reference import operands  # noqa: E402

from flare_components.ops.cuda import attention_choice, attention_xqa, timing, tuning  # noqa: E402

SHAPE = {"heads": 8, "kv_heads": 2, "width": 64, "page": 16}
LANES = [(1, 40), (0, 0), (1, 3)]


def made(**changed: Any) -> tuple[Any, ...]:
    return operands(torch.Generator().manual_seed(1), LANES, padding=1, **{**SHAPE, **changed})


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_xqa, "_major", lambda device: 9)
    monkeypatch.setattr(attention_xqa, "_memory", lambda device: 140 << 30)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({}, True),
        ({"dtype": torch.float16}, True),
        ({"dtype": torch.float32}, False),
        ({"width": 80}, True),
        ({"width": 72}, False),
        ({"width": 512}, True),
        ({"width": 576}, False),
        ({"width": 16}, False),  # 2**32 heads of 32 bytes are less than the memory
        ({"page": 128}, True),
        ({"page": 8}, False),
        ({"page": 256}, False),
        ({"heads": 2}, True),
        ({"heads": 32}, True),
        ({"heads": 34}, False),
    ],
)
def test_shapes_that_the_kernel_takes(changed: dict[str, Any], taken: bool) -> None:
    assert attention_xqa.takes(made(**changed)[:6]) is taken


@pytest.mark.usefixtures("hopper")
def test_operands_that_the_kernel_does_not_take() -> None:
    q, keys, values, table, starts, contexts, _ = made()
    apart = torch.empty(keys.shape, dtype=keys.dtype)
    assert not attention_xqa.takes((q, keys, apart, table, starts, contexts))
    assert not attention_xqa.takes((q, keys, values, table.long(), starts, contexts))
    odd = torch.empty(values.numel() * 8 + 1, dtype=keys.dtype)[1:].as_strided(keys.shape, keys.stride())
    assert not attention_xqa.takes((q, keys, odd, table, starts, contexts))


def test_other_architectures_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not attention_xqa.takes(made()[:6])  # no GPU
    monkeypatch.setattr(attention_xqa, "_memory", lambda device: 1)
    for major, taken in ((8, False), (9, True), (10, True), (11, False), (12, True)):
        monkeypatch.setattr(attention_xqa, "_major", lambda device, major=major: major)
        assert attention_xqa.takes(made()[:6]) is taken


def test_memory_for_parts() -> None:
    part = 256 + 4 * 128 * 2
    # 132 processors for 8 rows and 2 key heads, or a part for every 256 tokens.
    assert attention_xqa.workspace_bytes(8, 8, 2, 128, 1 << 17, 132) == 8 * 2 * 8 * part + 1024
    assert attention_xqa.workspace_bytes(8, 8, 2, 128, 600, 132) == 8 * 2 * 3 * part + 1024
    # Heads of 80 are padded to 128, of 16 to 64; more rows than processors have one part each.
    assert attention_xqa.workspace_bytes(1, 4, 1, 80, 256, 132) == part + 1024
    assert attention_xqa.workspace_bytes(200, 1, 1, 16, 4096, 132) == 200 * (256 + 128) + 128


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kernels that ran, on operands of the CPU; XQA takes a third of the time."""
    ran: list[str] = []

    def few(operands: Any, scale: float, arrivals: Any) -> str:
        ran.append("few")
        return "few"

    def xqa(*operands: Any) -> str:
        ran.append("xqa")
        return "xqa"

    def measure(call: Any, sets: list[tuple[Any, ...]]) -> float:
        assert len(sets) == 3
        for given in sets:
            assert torch.ops.flare.paged_attention(*given[:7]).isfinite().all()
            call(*given)
        return 10.0 if call is xqa else 30.0

    monkeypatch.setenv(attention_choice.UNQUALIFIED, "1")
    monkeypatch.setattr(attention_choice, "attend_few", few)
    monkeypatch.setattr(attention_xqa, "attend_xqa", xqa)
    monkeypatch.setattr(attention_xqa, "takes", lambda operands: True)
    monkeypatch.setattr(attention_xqa, "name", lambda: "xqa of flashinfer 7")
    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(timing, "rotations", lambda device, nbytes: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tuning.forget()
    yield ran
    tuning.forget()


def test_the_faster_kernel_is_chosen(compared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_xqa, "unavailable", lambda *shape: "")
    *given, scale = made()
    for arrivals in (None, torch.zeros(8, dtype=torch.int32)):
        with tuning.tuning() as report:
            chosen = attention_choice.attend_lanes(tuple(given), scale, arrivals)
        assert chosen == "xqa"
        (choice,) = report.choices
        assert choice.operator == "paged_attention"
        assert choice.microseconds == {"rows alone": 30.0, "xqa of flashinfer 7": 10.0}
        assert report.notes == []
    compared.clear()
    # What was chosen stays, without timing.
    attention_choice.attend_lanes(tuple(given), scale, None)
    assert compared == ["xqa"]


def test_without_tuning_nothing_of_a_library_is_touched(
    compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_xqa, "unavailable", None)
    *given, scale = made()
    attention_choice.attend_lanes(tuple(given), scale, None)
    assert compared == ["few"]


def test_a_kernel_that_was_not_served_yet_must_be_asked_for(
    compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_xqa, "unavailable", None)
    monkeypatch.delenv(attention_choice.UNQUALIFIED)
    *given, scale = made()
    with tuning.tuning() as report:
        attention_choice.attend_lanes(tuple(given), scale, None)
    assert compared == ["few"]
    assert (report.choices, report.notes) == ([], [])


def test_a_report_says_once_that_the_library_is_missing(
    compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attention_xqa.unavailable.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    *given, scale = made()
    with tuning.tuning() as report:
        for _ in range(2):
            attention_choice.attend_lanes(tuple(given), scale, None)
    attention_xqa.unavailable.cache_clear()
    assert compared == ["few", "few"]
    assert report.choices == []
    assert report.notes == [
        "decode attention has no kernel of FlashInfer to compare with: flashinfer-python is not installed"
    ]


@pytest.mark.parametrize(
    "error", [RuntimeError("Ninja build failed.\nmore"), ImportError("Ninja build failed.")]
)
def test_a_library_that_cannot_build_is_no_candidate(
    compared: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*operands: Any) -> None:
        raise error

    attention_xqa.unavailable.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace())
    monkeypatch.setattr(attention_xqa, "attend_xqa", fails)
    *given, scale = made()
    with tuning.tuning() as report:
        attention_choice.attend_lanes(tuple(given), scale, None)
    attention_xqa.unavailable.cache_clear()
    assert compared == ["few"]
    (line,) = report.notes
    assert line.endswith(f": {type(error).__name__}: Ninja build failed.")


def test_a_note_outside_of_tuning_is_not_kept() -> None:
    tuning.note("nowhere")
    with tuning.tuning() as report:
        assert report.notes == []


INTERPRETED = """
import torch
from attention_reference import operands
from flare_components.ops.cuda import attention_xqa

lanes = [(1, 300), (0, 0), (1, 17), (2, 18), (0, 40)]
given = operands(torch.Generator().manual_seed(1), lanes, padding=1, heads=6, kv_heads=2, width=64, page=16)
table = given[3]
for columns in (table.shape[1], 1500):  # more than one tile of columns
    wide = torch.full((len(lanes), columns), -1, dtype=torch.int32)
    wide[:, : table.shape[1]] = table
    q, *rest = given[:6]
    operands_ = (q, *rest[:2], wide, *rest[3:])
    lengths, pages, sinks, semaphores = attention_xqa.describe(operands_, None)
    assert lengths.flatten().tolist() == [300, 17, 17, 18, 0], lengths
    for row, (lane, count) in enumerate([(0, 19), (2, 2), (3, 2), (3, 2)]):
        assert pages[row, :count].tolist() == table[lane, :count].tolist(), row
    assert sinks.tolist() == [-1e5] * 6
    assert semaphores.tolist() == [0] * 10
    arrivals = torch.full((16,), 7, dtype=torch.int32)
    assert attention_xqa.describe(operands_, arrivals)[3] is arrivals
    assert arrivals.tolist() == [7] * 16  # whoever gives them has set them
"""


def test_rows_become_sequences_of_their_own() -> None:
    """In Triton's interpreter, which is chosen before Triton is imported."""
    path = os.pathsep.join([GPU_TESTS, *sys.path])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True, timeout=120)
