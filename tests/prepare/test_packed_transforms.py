"""Packed tensors of many sources become one: experts stacked, scales beside them, one source at a time."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flare.contract import DType
from flare.errors import CheckpointError
from flare.prepare import SafetensorsCheckpoint, TensorMap, TensorRule
from flare.prepare.checkpoint import TensorInfo
from flare.prepare.csf_transforms import CsfExceptions, CsfStarts
from flare.prepare.expert_transforms import ExpertScales, SharedScales, StackExperts
from flare.prepare.scale_transforms import BlockScales, Reinterpret, RowScales
from flare.prepare.tensor_transforms import ConcatRows, Identity, Transform
from flare_components.quant import csf

E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


class Store:
    """Tensors by name; `held` is the most that were alive at once."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        self.tensors = {name: TensorInfo(name, tuple(t.shape), str(t.dtype)) for name, t in tensors.items()}
        self.loaded: list[str] = []

    def load(self, name: str) -> torch.Tensor:
        self.loaded.append(name)
        return self._tensors[name]


def make(transform: Transform, *tensors: torch.Tensor) -> torch.Tensor:
    store = Store({f"s{index}": tensor for index, tensor in enumerate(tensors)})
    mapping = TensorMap({"made": TensorRule(tuple(store.tensors), transform)})
    mapping.check(store)
    assert store.loaded == []  # checking reads headers only
    made = mapping.assemble("made", store)
    assert tuple(made.shape) == mapping.info("made", store).shape
    return made


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8, E4M3, E8M0])
def test_experts_are_stacked_in_any_type(dtype: torch.dtype) -> None:
    content = torch.randint(0, 255, (3, 5, 4 * torch.empty(0, dtype=dtype).element_size()), dtype=torch.uint8)
    whole = content.view(dtype)
    made = make(StackExperts(2), *(part for expert in whole for part in (expert[:2], expert[2:])))
    assert made.dtype == dtype
    assert raw(made) == raw(whole)
    assert raw(make(StackExperts(), *whole)) == raw(whole)


@pytest.mark.parametrize(
    ("transform", "shapes", "complaint"),
    [
        (StackExperts(2), [(2, 3)] * 3, "3 sources do not come 2 at a time"),
        (StackExperts(2), [(2, 3), (2, 4)] * 2, "cannot be stacked"),
        (StackExperts(1), [(2, 3), (4, 3)], "experts have different shapes"),
        (StackExperts(1), [()], "cannot be stacked|different"),
        (ExpertScales(2), [(), (2,)], "one number"),
        (SharedScales(3), [(), ()], "2 sources do not come 3"),
        (RowScales(), [(4, 2), (2,)], "each with one number"),
        (RowScales(), [(4, 2), (), (3, 2)], "do not come 2"),
        (BlockScales(16, 2, ConcatRows()), [(24, 8), (2, 1), (16, 8), (1, 1)], "24 rows end inside a block"),
        (BlockScales(16, 1, Identity()), [(24, 8), (1, 1)], "not those of blocks of 16"),
        (CsfExceptions(2), [(1, 32), (3,)], "do not come 4"),
        (CsfStarts(), [(1, 33), (3,)], "not the streams"),
        (CsfStarts(), [(1, 32), (3,), (1, 48), (0,)], "not the streams"),
        (CsfExceptions(2), [(1 << 12, 16 * 129), (0,)] * 2, "more than 16777216"),
    ],
)
def test_sources_that_do_not_fit_are_refused_by_their_headers(
    transform: Transform, shapes: list[tuple[int, ...]], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        transform.shape(shapes)


def test_scales_of_experts_and_rows() -> None:
    numbers = [torch.tensor(value) for value in (1.0, 2.0, 4.0, 8.0)]
    assert make(ExpertScales(2), *numbers).tolist() == [[1, 2], [4, 8]]
    assert make(ExpertScales(1, reciprocal=True), *(n.view(1) for n in numbers)).tolist() == [
        1,
        0.5,
        0.25,
        0.125,
    ]
    same = [numbers[1], numbers[1], numbers[2], numbers[2]]
    assert make(SharedScales(2), *same).tolist() == [2, 4]
    assert make(SharedScales(2, reciprocal=True), *same).tolist() == [0.5, 0.25]
    with pytest.raises(CheckpointError, match="made: scales differ"):
        make(SharedScales(2), *numbers)
    rows = make(RowScales(), torch.zeros(2, 3), numbers[0], torch.zeros(1, 3), numbers[2].view(1))
    assert (rows.tolist(), rows.dtype) == ([1, 1, 4], torch.float32)
    assert make(RowScales(reciprocal=True), torch.zeros(1, 3), numbers[2]).tolist() == [0.25]


def test_matrices_beside_their_numbers_are_not_copied() -> None:
    store = Store({"w": torch.zeros(32, 8), "s": torch.ones(2, 1), "n": torch.tensor(1.0)})
    rules = {
        "blocks": TensorRule(("w", "s"), BlockScales(16, 1, Identity())),
        "rows": TensorRule(("w", "n"), RowScales()),
    }
    assert TensorMap(rules).assemble("blocks", store) is store.load("s")
    assert store.loaded == ["s", "s"]


def test_bytes_are_read_as_exponents() -> None:
    stored = torch.arange(12, dtype=torch.uint8).view(3, 4)
    made = make(Reinterpret(ConcatRows(), DType.F8_E8M0), stored, stored)
    assert made.dtype == E8M0
    assert raw(made) == raw(stored) * 2
    assert make(Reinterpret(Identity(), DType.F8_E8M0), stored.view(E8M0)).dtype == E8M0  # already stored so
    with pytest.raises(CheckpointError, match="cannot be read as F8_E8M0"):
        make(Reinterpret(Identity(), DType.F8_E8M0), torch.zeros(3))


def test_block_scales_of_stacked_matrices() -> None:
    scales = torch.rand(4, 2, 3)
    pairs = [t for scale in scales for t in (torch.zeros(32, 40), scale)]
    assert torch.equal(make(BlockScales(16, 2, StackExperts(2)), *pairs), scales.reshape(2, 4, 3))
    odd = [torch.zeros(32, 40), scales[0], torch.zeros(20, 40), scales[1]]
    assert torch.equal(make(BlockScales(16, 2, ConcatRows()), *odd), scales[:2].reshape(4, 3))


def streams(experts: int, parts: int, slabs: int, columns: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    scales = torch.randint(90, 110, (experts, parts, 16 * slabs, columns), dtype=torch.uint8)
    made = []
    for matrix in scales.flatten(0, 1):
        stored = csf.encode(matrix)
        made += [stored.fixed, stored.exceptions]
    return scales.flatten(1, 2), made


@pytest.mark.parametrize("parts", [1, 2])
def test_compressed_scales_of_experts_decode_to_the_stacked_ones(parts: int) -> None:
    scales, made = streams(3, parts, 2, 6)
    fixed = make(StackExperts(parts), *made[::2])
    exceptions, starts = make(CsfExceptions(parts), *made), make(CsfStarts(parts), *made)
    assert (exceptions.dtype, starts.dtype) == (torch.uint32, torch.int32)
    assert exceptions.numel() > 10
    slabs = 2 * parts
    for expert in range(3):
        begin, end = starts[[expert * slabs, (expert + 1) * slabs]].tolist()
        stored = csf.CsfScales(fixed[expert], exceptions[begin:end])
        assert torch.equal(csf.decode(stored), scales[expert])
        for slab in range(slabs):
            one = (
                exceptions[starts[expert * slabs + slab] : starts[expert * slabs + slab + 1]].long()
                & 0xFFFFFF
            )
            assert bool((one // (16 * 6) == slab).all())
    assert starts[0] == 0
    assert starts[-1] == exceptions.numel()


def test_damaged_streams_are_named() -> None:
    _, made = streams(1, 1, 1, 6)
    made[1] = made[1].view(torch.int32).flip(0).view(torch.uint32)
    with pytest.raises(CheckpointError, match="made: exceptions of compressed scales"):
        make(CsfExceptions(), *made)
    made[0][0, 3] = 241
    with pytest.raises(CheckpointError, match="row base above 240"):
        make(CsfStarts(), *made)


def test_more_experts_than_open_files(tmp_path: Path) -> None:
    """A source is mapped, copied and let go before the next: mappings hold a file descriptor each."""
    number = 300
    save_file(
        {f"e{index}.w": torch.full((2, 8), index % 256, dtype=torch.uint8) for index in range(number)},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text("{}")
    checkpoint = SafetensorsCheckpoint(tmp_path)
    mapping = TensorMap({"w": TensorRule(tuple(f"e{i}.w" for i in range(number)), StackExperts())})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        made = mapping.assemble("w", checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert made[:, 0, 0].tolist() == [index % 256 for index in range(number)]
