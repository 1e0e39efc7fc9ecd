"""What is written is what is read: by our reader, by the safetensors library, before and after sealing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from core_samples import CONTRACT, SPECS, payload, split, write_core
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from flare.contract import DType
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec

TORCH = {DType.BF16: torch.bfloat16, DType.F32: torch.float32, DType.I64: torch.int64, DType.U8: torch.uint8}


def test_reader_returns_contract_specs_and_bytes(core: Path) -> None:
    with CoreReader(core) as reader:
        assert reader.contract_json == CONTRACT
        assert tuple(reader.tensors.values()) == SPECS
        for spec in SPECS:
            assert reader.bytes(spec.name) == payload(spec)
            assert reader.load(spec.name) == payload(spec)
            assert reader.load(spec.name, verify=False) == payload(spec)
        assert reader.verify() == ()


def test_safetensors_library_reads_every_tensor(core: Path) -> None:
    with safe_open(core, "pt") as file:
        metadata = file.metadata()
        assert metadata["flare.core"] == "1"
        assert metadata["flare.contract"] == CONTRACT
        for spec in SPECS:
            tensor = file.get_tensor(spec.name)
            assert tuple(tensor.shape) == spec.shape
            if spec.dtype in TORCH:
                assert tensor.dtype == TORCH[spec.dtype]
            assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == payload(spec)
    with safe_open(core, "np") as file:
        norm = file.get_tensor("weights/norm")
        np.testing.assert_array_equal(norm, np.frombuffer(payload(SPECS[1]), np.float32))
        assert file.get_tensor("weights/none").shape == (0, 3)
        assert file.get_tensor("weights/scale").shape == ()


def test_every_tensor_is_aligned_in_the_file(core: Path) -> None:
    raw = core.read_bytes()
    document, data = split(raw)
    start = len(raw) - len(data)
    assert start % 4096 == 0
    for name, entry in document.items():
        if name == "__metadata__" or name.startswith("pad/"):
            continue
        begin, end = entry["data_offsets"]
        boundary = 1 if begin == end else 4096 if end - begin >= 65536 else 64
        assert (start + begin) % boundary == 0, name
    pages = [e for n, e in document.items() if n in ("weights/embed", "table/ngrams")]
    assert len(pages) == 2


@given(
    sizes=st.lists(st.sampled_from([0, 1, 63, 64, 65, 4095, 65535, 65536, 65537, 200_000]), max_size=6),
    role=st.sampled_from(list(Role)),
)
@settings(max_examples=25, deadline=None)
def test_any_sizes_make_a_file_that_both_readers_accept(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], role: Role
) -> None:
    specs = tuple(TensorSpec.document(f"t/{i}", size, role) for i, size in enumerate(sizes))
    path = write_core(tmp_path_factory.mktemp("sizes") / "c.safetensors", "{}", specs)
    with CoreReader(path) as reader:
        assert reader.verify() == ()
        assert [bytes(reader.bytes(spec.name)) for spec in specs] == [payload(spec) for spec in specs]
    with safe_open(path, "np") as file:
        assert all(file.get_tensor(spec.name).tobytes() == payload(spec) for spec in specs)


@pytest.mark.parametrize("cut", [1, 1000, 65536, 65537, 170_000])
def test_pieces_of_any_size_in_any_order_give_the_same_file(tmp_path: Path, core: Path, cut: int) -> None:
    with CoreWriter(tmp_path / "pieces", SPECS, header_budget_bytes=4096) as writer:
        for spec in reversed(SPECS):
            whole = payload(spec)
            step = cut if spec.role is Role.TABLE else max(cut, 100)
            pieces = (whole[i : i + step] for i in range(0, len(whole), step))
            writer.write(spec.name, pieces if spec.nbytes < 100 * step else whole)
        writer.seal(CONTRACT)
    assert (tmp_path / "pieces").read_bytes() == core.read_bytes()


def test_typed_arrays_are_written_as_their_bytes(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    spec = TensorSpec("w", DType.F32, (3, 4), Role.WEIGHT)
    with CoreWriter(tmp_path / "typed", [spec]) as writer:
        writer.write("w", [memoryview(values[:1]), memoryview(values[1:])])
        writer.seal("{}")
    with safe_open(tmp_path / "typed", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("w"), values)


def test_a_core_in_preparation_serves_its_written_tensors(tmp_path: Path) -> None:
    with CoreWriter(tmp_path / "c", SPECS) as writer:
        embed = SPECS[0]
        writer.write(embed.name, payload(embed))
        mapped = writer.bytes(embed.name)
        out = np.zeros(embed.nbytes, np.uint8)
        writer.upload([(embed.name, memoryview(out))])
        assert mapped == out.tobytes() == writer.load(embed.name) == payload(embed)
        with pytest.raises(AssertionError, match="before it is written"):
            writer.bytes("weights/norm")
        for spec in SPECS[1:]:
            writer.write(spec.name, payload(spec))
        writer.seal("{}")
    assert mapped == payload(embed)  # a view outlives its writer


def test_mapped_bytes_are_read_only_and_outlive_the_reader(core: Path) -> None:
    reader = CoreReader(core)
    view = reader.bytes("weights/embed")
    assert view.readonly
    descriptors = len(os.listdir("/proc/self/fd"))
    reader.close()
    reader.close()
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert view == payload(SPECS[0])


def test_writer_bugs_are_assertions(tmp_path: Path) -> None:
    spec = TensorSpec.document("a", 10)
    with CoreWriter(tmp_path / "c", [spec]) as writer:
        with pytest.raises(AssertionError, match="never written"):
            writer.seal("{}")
        with pytest.raises(AssertionError, match="too many bytes"):
            writer.write("a", b"0" * 11)
    with CoreWriter(tmp_path / "c", [spec]) as writer:
        with pytest.raises(AssertionError, match="9 of 10"):
            writer.write("a", b"0" * 9)
        with pytest.raises(AssertionError, match="twice"):
            writer.write("a", b"0" * 10)
        with pytest.raises(AssertionError, match="never written"):
            writer.seal("{}")
