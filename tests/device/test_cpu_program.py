"""Running operator lists: operands of every kind, results nobody uses, probes, failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flare.contract import BufferSpec, DType, Initial, OperatorList, Region
from flare.device.cpu_memory import CpuMemory
from flare.device.cpu_operators import OperatorTable
from flare.device.cpu_program import CpuProgram
from flare.errors import CoreError

X = torch.arange(6, dtype=torch.float32)


class Source:
    def bytes(self, name: str) -> memoryview:
        return memoryview(X.numpy()).cast("B")

    load = bytes

    def upload(self, requests: Any) -> None:
        for name, target in requests:
            target[:] = self.bytes(name)


def memory() -> CpuMemory:
    buffers = [
        BufferSpec(
            name="x",
            region=Region.WEIGHTS,
            dtype=DType.F32,
            shape=(6,),
            offset=0,
            initial=Initial.BYTES,
            tensor="x",
        ),
        BufferSpec(name="y", region=Region.SCRATCH, dtype=DType.F32, shape=(12,), offset=0),
    ]
    return CpuMemory(buffers, Source())


VIEWS = {"x": ("x", (6,)), "y": ("y", (12,)), "half": ("y", (6,))}


def program(
    *steps: tuple[str, list[Any], dict[str, Any], list[int]], probes: dict[str, int] | None = None
) -> tuple[CpuProgram, CpuMemory]:
    """Steps of (operator, args, keywords, out); a string operand names a view."""
    names = list(VIEWS)
    operators = sorted({step[0] for step in steps})

    def packet(name: str) -> Any:
        base, _, overload = name.removeprefix("aten::").partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    def operand(value: Any) -> Any:
        if isinstance(value, list):
            return [operand(item) for item in value]
        return {"v": names.index(value)} if isinstance(value, str) else value

    listing = OperatorList.model_validate(
        {
            "views": [{"buffer": buffer, "dtype": "F32", "shape": shape} for buffer, shape in VIEWS.values()],
            "operators": [{"name": name, "schema_text": str(packet(name)._schema)} for name in operators],
            "steps": [
                {
                    "op": operators.index(name),
                    "args": operand(args),
                    "keywords": {key: operand(value) for key, value in keywords.items()},
                    "out": out,
                }
                for name, args, keywords, out in steps
            ],
            "probes": probes or {},
        }
    )
    held = memory()
    return CpuProgram("p", listing, held, OperatorTable(None)), held


def result(held: CpuMemory) -> torch.Tensor:
    return torch.from_numpy(held.bytes("y")).view(torch.float32)


def test_lists_of_temporaries_and_views() -> None:
    made, held = program(
        ("aten::neg", ["x"], {}, [0]),
        ("aten::cat", [["x", {"t": 0}]], {}, [1]),
        ("aten::copy_", ["y", {"t": 1}], {}, [-1]),
    )
    made.run()
    assert torch.equal(result(held), torch.cat([X, -X]))
    assert made.live_buffers == {"x", "y"}


def test_several_results_of_which_some_are_unused() -> None:
    made, held = program(
        ("aten::split.Tensor", ["x", 2], {}, [-1, 0, -1]),
        ("aten::neg", ["x"], {}, [1]),
        ("aten::max.dim", [{"t": 0}, 0], {}, [2, -1]),
        ("aten::mul.Tensor", [{"t": 1}, {"t": 2}], {}, [3]),
        ("aten::copy_", ["half", {"t": 3}], {}, [-1]),
    )
    made.run()
    assert torch.equal(result(held)[:6], -X * 3)


def test_types_and_floats_that_json_lacks() -> None:
    made, held = program(
        ("aten::full_like", ["half", {"f": "-inf"}], {"dtype": {"dtype": "F64"}}, [0]),
        ("aten::copy_", ["half", {"t": 0}], {}, [-1]),
    )
    made.run()
    assert torch.isneginf(result(held)[:6]).all()


def test_views_as_keywords_count_as_read() -> None:
    made, _ = program(("aten::relu", [], {"self": "x"}, [0]))
    made.run()
    assert made.live_buffers == {"x"}


def test_temporaries_as_keywords_are_refused() -> None:
    with pytest.raises(CoreError, match="temporaries as keywords"):
        program(("aten::neg", ["x"], {}, [0]), ("aten::relu", [], {"self": {"t": 0}}, [1]))


def test_a_probe_is_the_value_when_it_was_produced() -> None:
    made, _ = program(
        ("aten::neg", ["x"], {}, [0]), ("aten::add_.Tensor", [{"t": 0}, 1], {}, [1]), probes={"negated": 0}
    )
    for _ in range(2):  # and a copy: running again changes nothing that was handed out
        first = made.run_probed()["negated"]
        made.run()
        assert torch.equal(first, -X)


def test_temporaries_die_at_their_last_use() -> None:
    made, _ = program(
        ("aten::neg", ["x"], {}, [0]),
        ("aten::abs", [{"t": 0}], {}, [1]),
        ("aten::add.Tensor", [{"t": 1}, "x"], {}, [2]),
    )
    assert [instruction.dead for instruction in made._instructions] == [(), (0,), (1, 2)]
