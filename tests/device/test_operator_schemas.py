"""Which recorded schemas still run: gained arguments with defaults leave a call what it was."""

from __future__ import annotations

import pytest
import torch

import flare_components.ops  # noqa: F401  (registers the operators)
from flare.contract import Operator
from flare.device.cpu_operators import OperatorTable
from flare.errors import CoreError

NOW = "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor"


@pytest.mark.parametrize("recorded", [NOW, "aten::softmax.int(Tensor self, int dim) -> Tensor"])
def test_a_call_of_an_earlier_schema_runs(recorded: str) -> None:
    call = OperatorTable(None).resolve(Operator(name="aten::softmax.int", schema_text=recorded))
    assert call(torch.zeros(4), 0).tolist() == [0.25] * 4


def test_a_selection_without_weights_runs_as_recorded() -> None:
    recorded = (
        "flare::select_groups(Tensor q, Tensor pages, Tensor page_table, Tensor query_start, "
        "Tensor context_lens, int group, int count) -> Tensor"
    )
    call = OperatorTable(None).resolve(Operator(name="flare::select_groups", schema_text=recorded))
    lengths = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([4], dtype=torch.int32)
    pages, table = torch.randn(1, 4, 8), torch.zeros(1, 1, dtype=torch.int32)
    assert call(torch.randn(1, 2, 8), pages, table, *lengths, 2, 3).tolist() == [[0, 1, -1]]


@pytest.mark.parametrize(
    "recorded",
    [
        "aten::softmax.int(Tensor self) -> Tensor",
        "aten::softmax.int(int dim, Tensor self) -> Tensor",
        "aten::softmax.int(Tensor(a!) self, int dim) -> Tensor",
        "aten::softmax.int(Tensor self, int dim) -> (Tensor, Tensor)",
        "aten::softmax.int(Tensor self, int axis) -> Tensor",
        "aten::softmax.int(Tensor self, int dim, int more=1) -> Tensor",
        "aten::softmax(Tensor self, int dim) -> Tensor",
        "aten::tanh(Tensor self) -> Tensor",
        "softmax",
        "",
    ],
)
def test_a_call_that_means_something_else_is_refused(recorded: str) -> None:
    with pytest.raises(CoreError, match="the core was prepared with") as caught:
        OperatorTable(None).resolve(Operator(name="aten::softmax.int", schema_text=recorded))
    assert caught.value.field == "aten::softmax.int"
