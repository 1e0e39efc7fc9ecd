"""Names and layers of a graph's kernels, where no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_names import Layers, OperatorNames, find_layers

LAYER = ["norm", "gemm", "attend", "gemm", "norm", "gemm", "gate", "gemm"]


@pytest.mark.parametrize("count", [2, 5])
def test_layers_are_the_longest_repetition(count: int) -> None:
    names = ["embed", "first", *LAYER * count, "head", "draw", "draw", "draw"]
    layers = find_layers(names)
    assert (layers.length, layers.count) == (len(LAYER), count)
    assert [layers.of(place) for place in (0, 1)] == [None, None]
    assert [layers.of(2 + n * len(LAYER)) for n in range(count)] == list(range(count))
    assert layers.of(2 + count * len(LAYER)) is None


def test_a_sequence_without_repetition_has_no_layers() -> None:
    layers = find_layers(["a", "b", "c", "c", "c"])
    assert layers.count == 0
    assert {layers.of(place) for place in range(5)} == {None}
    assert find_layers([]) == Layers(0, 0, 0)


def test_a_layer_that_differs_is_no_part_of_the_run() -> None:
    odd = [*LAYER[:3], "another", *LAYER[4:]]
    layers = find_layers([*LAYER * 2, *odd, *LAYER * 4])
    assert layers == Layers(len(LAYER) * 3 - 4, len(LAYER), 4)


@pytest.fixture(scope="module")
def operators() -> OperatorNames:
    pytest.importorskip("triton")
    return OperatorNames()


def test_kernels_are_called_like_the_module_that_has_them(operators: Any) -> None:
    assert operators.of("attend_tokens") == "attention.attend_tokens"
    assert operators.of("commit") == "token_state.commit"
    assert operators.of("nvjet_tst_64x8_64x16_2x1_v_bz_TNT") == "linear (cuBLAS)"
    assert operators.of("void at::native::vectorized_elementwise_kernel<4>") == "tensor operations (torch)"
    assert operators.of("unknown_kernel") == "unknown_kernel"
