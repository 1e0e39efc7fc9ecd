"""Tensor maps: complete or an error that lists everything, and transforms that are exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flare.errors import CheckpointError
from flare.prepare.checkpoint import Assets, TensorInfo
from flare.prepare.checkpoint_mapped import MappedCheckpoint
from flare.prepare.tensor_map import TensorMap, TensorRule
from flare.prepare.tensor_transforms import ConcatRows, FlattenRows, HeadRows, Identity, PairsToHalves


class Store:
    def __init__(self, **tensors: torch.Tensor) -> None:
        self._tensors = tensors
        self.tensors = {name: TensorInfo(name, tuple(t.shape), "F32") for name, t in tensors.items()}
        self.loaded: list[str] = []

    def load(self, name: str) -> torch.Tensor:
        self.loaded.append(name)
        return self._tensors[name]


def store() -> Store:
    return Store(q=torch.arange(8.0).reshape(4, 2), k=-torch.arange(4.0).reshape(2, 2), n=torch.ones(3))


def test_rows_stack_in_the_order_given() -> None:
    mapping = TensorMap.rows({"qk": ("q", "k"), "norm": ("n",)})
    source = store()
    mapping.check(source)
    assert source.loaded == []  # checking reads headers only
    assert mapping.info("qk", source) == TensorInfo("qk", (6, 2), "F32")
    assert torch.equal(mapping.assemble("qk", source), torch.cat([source.load("q"), source.load("k")]))
    assert torch.equal(mapping.assemble("norm", source), torch.ones(3))


def test_check_lists_every_missing_and_every_unmapped_tensor() -> None:
    mapping = TensorMap.rows({"a": ("x", "q"), "b": ("y",)})
    with pytest.raises(CheckpointError, match="missing: x, y; not mapped: k, n") as raised:
        mapping.check(store())
    assert raised.value.field == "x"


def test_ignored_tensors_may_be_there_or_not() -> None:
    mapping = TensorMap.rows({"a": ("q",)}, ignored={"k": "a copy of q", "n": "not used", "z": "absent"})
    mapping.check(store())
    with pytest.raises(CheckpointError, match="not mapped: k, n"):
        TensorMap.rows({"a": ("q",)}).check(store())


@pytest.mark.parametrize(
    "rule",
    [
        TensorRule(("q", "n"), ConcatRows()),
        TensorRule(("q", "k"), Identity()),
        TensorRule(("q",), PairsToHalves(3)),
        TensorRule(("n",), PairsToHalves(3)),
        TensorRule(("q", "k"), HeadRows(1, 4, 0, 1)),
        TensorRule(("q",), HeadRows(2, 7, 0, 1)),
    ],
)
def test_sources_that_do_not_fit_name_the_target(rule: TensorRule) -> None:
    mapping = TensorMap({"bad": rule}, ignored=dict.fromkeys("qkn", ""))
    with pytest.raises(CheckpointError, match=r"^bad from"):
        mapping.check(store())


def test_a_convolution_of_its_own_extent_is_a_product_of_flat_rows() -> None:
    weight, image = torch.randn(5, 3, 2, 2), torch.randn(1, 3, 4, 6)
    want = torch.conv2d(image, weight, stride=2).flatten(2)[0].T
    blocks = image[0].unfold(1, 2, 2).unfold(2, 2, 2)  # channel, block row, block column, row, column
    channels_first = blocks.permute(1, 2, 0, 3, 4).reshape(6, 12)
    channels_last = blocks.permute(1, 2, 3, 4, 0).reshape(6, 12)
    for rows, transform in (
        (channels_first, FlattenRows()),
        (channels_last, FlattenRows(channels_last=True)),
    ):
        flat = transform.apply([weight])
        assert transform.shape([tuple(weight.shape)]) == tuple(flat.shape) == (5, 12)
        torch.testing.assert_close(rows @ flat.T, want)


def test_parts_of_heads() -> None:
    heads = torch.arange(2 * 5 * 3).reshape(2, 5, 3)
    for start, stop in ((0, 2), (2, 5)):
        transform = HeadRows(2, 5, start, stop)
        part = transform.apply([heads.flatten(0, 1)])
        assert transform.shape([(10, 3)]) == tuple(part.shape)
        assert torch.equal(part, heads[:, start:stop])


def test_unknown_targets_and_sources() -> None:
    mapping = TensorMap.rows({"a": ("x",)})
    with pytest.raises(CheckpointError, match="maps no checkpoint tensor to b"):
        mapping.assemble("b", store())
    with pytest.raises(CheckpointError, match="no tensor x"):
        mapping.assemble("a", store())


@given(heads=st.integers(1, 5), half=st.integers(1, 6), columns=st.integers(1, 3))
def test_pairs_to_halves_inverts_the_published_permutation(heads: int, half: int, columns: int) -> None:
    rows = torch.arange(heads * 2 * half * columns).reshape(heads * 2 * half, columns)
    # What the GGUF converters do to a Hugging Face projection: halves become neighbours.
    stored = rows.reshape(heads, 2, half, columns).swapaxes(1, 2).reshape(rows.shape)
    transform = PairsToHalves(heads)
    assert torch.equal(transform.apply([stored]), rows)
    assert transform.shape([tuple(stored.shape)]) == tuple(rows.shape)


def test_pairs_to_halves_by_hand() -> None:
    # Two heads of four rows: first of each pair, then second of each pair.
    moved = PairsToHalves(2).apply([torch.arange(8)])
    assert moved.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_a_mapped_checkpoint_reads_like_any_other() -> None:
    source = store()
    mapping = TensorMap.rows({"qk": ("q", "k"), "norm": ("n",)})
    checkpoint = MappedCheckpoint(source, mapping, config={"x": 1}, assets=Assets(), revision="r")
    assert {name: info.shape for name, info in checkpoint.tensors.items()} == {"qk": (6, 2), "norm": (3,)}
    assert checkpoint.load("qk").shape == (6, 2)
    with pytest.raises(CheckpointError, match=r"no tensor q$"):
        checkpoint.load("q")
    with pytest.raises(CheckpointError, match="not mapped: n"):
        MappedCheckpoint(source, TensorMap.rows({"qk": ("q", "k")}), config={}, assets=Assets(), revision="r")
