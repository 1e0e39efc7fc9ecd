"""A second capture elsewhere: tensors move and come back, and words that hide in memory are told apart."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from flare.contract import BufferSpec, BufferView, DType, Initial, ProgramKind, Region
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.graph_spec import VERSION, GraphSpec, KernelNode, Parameter, Pointer
from flare.device.cuda.layout import plan_layout
from flare.prepare import cuda_hidden
from flare.prepare.cuda_hidden import address_in_scratch, addresses_in, check_state, zero_buffers
from flare.prepare.cuda_moved import DISTANCE, confirmed, moved
from flare.prepare.definition import ProgramDefinition

LAYOUT = plan_layout()
ADDRESS = LAYOUT.start(Region.ROWS) + 64


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("state", torch.zeros(4))
        self.inner = nn.Module()
        self.inner.weight = self.weight  # tied


class Elsewhere:
    """Other memory for views."""

    def __init__(self) -> None:
        self.memory: dict[BufferView, torch.Tensor] = {}

    def view(self, view: BufferView) -> torch.Tensor:
        return self.memory.setdefault(view, torch.full(view.shape, 7.0))


def program(module: nn.Module, *names: str) -> ProgramDefinition:
    views = {
        name: BufferView(buffer="state" if "state" in name else "weight", dtype=DType.F32, shape=(4,))
        for name in names
    }
    return ProgramDefinition(
        name="p", kind=ProgramKind.DECODE, lanes=1, tokens=1, module=module, views=views, bindings=()
    )


def test_tensors_move_and_come_back_with_their_identity() -> None:
    module, memory = Scale(), Elsewhere()
    programs = [program(module, "weight", "inner.weight"), program(module, "state")]
    weight, state = module.weight, module.state
    addresses = weight.data_ptr(), state.data_ptr()
    with moved(programs, memory):
        assert module.weight is module.inner.weight is weight
        assert module.state is state
        assert (weight + state).tolist() == [14.0] * 4
        state.add_(1)
        assert len(memory.memory) == 2
    assert (weight.data_ptr(), state.data_ptr()) == addresses
    assert (weight + state).tolist() == [1.0] * 4
    assert memory.view(programs[1].views["state"]).tolist() == [8.0] * 4


def test_words_that_point_into_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_hidden, "_CHUNK", 3)
    end = LAYOUT.base + LAYOUT.nbytes
    words = torch.tensor([0, ADDRESS, LAYOUT.base - 1, LAYOUT.base, -ADDRESS, end, end - 1])
    assert addresses_in(words, LAYOUT) == {8: ADDRESS, 24: LAYOUT.base, 48: end - 1}
    assert addresses_in(words[:0], LAYOUT) == {}


def test_buffers_that_begin_empty() -> None:
    def buffer(name: str, size: int, **given: Any) -> BufferSpec:
        return BufferSpec(name=name, region=Region.ROWS, dtype=DType.U8, shape=(size,), offset=0, **given)

    stored = buffer("stored", 8, initial=Initial.BYTES, tensor="t")
    assert zero_buffers([buffer("rows", 8), buffer("short", 7), stored]) == ["rows"]


def test_an_address_in_state_is_refused() -> None:
    first = {("rows", 24): ADDRESS, ("scratch/0", 8): ADDRESS}
    check_state(first, {("rows", 24): ADDRESS}, ["rows"], DISTANCE)  # a number: it did not move
    check_state(first, {("rows", 32): ADDRESS + DISTANCE}, ["rows"], DISTANCE)  # it is gone
    check_state(first, {("scratch/0", 8): ADDRESS + DISTANCE}, ["rows"], DISTANCE)
    with pytest.raises(GraphExportError, match=r"byte 24 of buffer rows holds an address \(0x"):
        check_state(first, {("rows", 24): ADDRESS + DISTANCE}, ["rows"], DISTANCE)


def test_an_address_in_scratch_memory_keeps_it_where_it_is() -> None:
    key = ("scratch/0", 8)
    assert address_in_scratch({}, {}, {}, DISTANCE) == ""
    assert address_in_scratch({key: ADDRESS}, {key: 5}, {}, DISTANCE) == ""
    moves = address_in_scratch({key: ADDRESS}, {key: ADDRESS + DISTANCE}, {}, DISTANCE)
    kept = address_in_scratch({}, {}, {key: ADDRESS}, DISTANCE)
    assert moves == kept == f"byte 8 of buffer scratch/0 holds {ADDRESS:#x}, an address of the arena"


def spec(base: int, word: int) -> GraphSpec:
    pointers = (Pointer(0, "rows", 64),) if word == ADDRESS - LAYOUT.base + base else ()
    parameter = Parameter(word.to_bytes(8, "little"), pointers)
    node = KernelNode("digest", "scale_rows", (1, 1, 1), (32, 1, 1), 0, (parameter,))
    return GraphSpec(VERSION, "sm_90", 13000, plan_layout(base), (node,), ())


def test_programs_are_movable_or_say_why_not(caplog: pytest.LogCaptureFixture) -> None:
    base, other = LAYOUT.base, LAYOUT.base + DISTANCE
    first = {"plain": spec(base, ADDRESS), "scaled": spec(base, base >> 4)}
    second = {"plain": spec(other, ADDRESS + DISTANCE), "scaled": spec(other, other >> 4)}
    with caplog.at_level(logging.WARNING):
        found = confirmed(first, second, "")
    assert found["plain"] == msgspec.structs.replace(first["plain"], relocatable=True)
    assert not found["scaled"].relocatable
    assert (
        "node 0 (scale_rows) parameter 0, byte 0, holds an address that cannot" in found["scaled"].immovable
    )
    assert "program scaled must stay at its addresses: node 0" in caplog.text
    hidden = confirmed(first, second, "a table of pointers")
    assert {(each.relocatable, each.immovable) for each in hidden.values()} == {
        (False, "a table of pointers")
    }
