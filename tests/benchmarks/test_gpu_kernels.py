"""Names and layers of a graph's kernels, where no GPU is needed."""

from __future__ import annotations

from typing import Any

import kernel_times
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


def test_waiting_inside_a_kernel_is_not_its_time() -> None:
    replay = [(100, 50, "a"), (110, 90, "b"), (205, 10, "c"), (206, 4, "within")]
    spans = kernel_times._spans([(1000 * begin, 1000 * length, name) for begin, length, name in replay])
    assert spans == [(50, 0), (50, -40), (10, 5), (0, -9)]


class Plain(OperatorNames):
    """Knows the names of libraries alone."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}


def test_an_operator_that_a_layer_has_several_times_is_numbered() -> None:
    names = ["embed", *LAYER * 2, "gemm"]
    kernels = [kernel_times.Kernel(name, 1.0, 0.0) for name in names]
    labels = kernel_times._labels(kernels, find_layers(names), Plain())
    assert labels[1:9] == labels[9:17]
    assert [label for label in labels[1:9] if "gemm" in label or "cuBLAS" in label] == [
        f"linear (cuBLAS) {number} of 4" for number in (1, 2, 3, 4)
    ]
    assert (labels[0], labels[2 + 2 * len(LAYER) - 1]) == ("embed", "linear (cuBLAS)")
