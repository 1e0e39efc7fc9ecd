"""GGUF files: metadata as Python values, tensors under their own names, blocks dequantized."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorInfo
from flare.prepare.checkpoint_gguf import GgufFile
from flare.recipes import LocalCheckpoint


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sample.gguf"
    writer = gguf.GGUFWriter(file, "sample")
    writer.add_uint32("sample.layers", 3)
    writer.add_float32("sample.eps", 0.5)
    writer.add_bool("sample.flag", True)
    writer.add_string("sample.text", "größer")
    writer.add_array("sample.words", ["a", "Ġb", "c d"])
    writer.add_array("sample.numbers", [3, 1, 2])
    writer.add_tensor("plain", values(2, 3))
    writer.add_tensor("half", values(4).astype(np.float16))
    for name, kind in (("q8", gguf.GGMLQuantizationType.Q8_0), ("q4", gguf.GGMLQuantizationType.Q4_1)):
        writer.add_tensor(name, gguf.quants.quantize(values(3, 64), kind), raw_dtype=kind)
    bf16 = gguf.quants.quantize(values(2, 4), gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_metadata(path: Path) -> None:
    file = GgufFile(LocalCheckpoint(path=path, revision="r", uri="u"))
    assert file.revision == "r"
    assert file.require("general.architecture") == "sample"
    expected = {"layers": 3, "eps": 0.5, "flag": True, "text": "größer", "words": ["a", "Ġb", "c d"]}
    assert {key: file.metadata[f"sample.{key}"] for key in expected} == expected
    assert file.metadata["sample.numbers"] == [3, 1, 2]
    assert "sample.none" not in file.metadata
    with pytest.raises(CheckpointError, match=r"sample\.gguf lacks the metadata sample\.none") as raised:
        file.require("sample.none")
    assert raised.value.field == "sample.none"


def test_headers_are_row_major(path: Path) -> None:
    tensors = GgufFile(path).tensors
    assert tensors["plain"] == TensorInfo("plain", (2, 3), "F32")
    assert tensors["q4"] == TensorInfo("q4", (3, 64), "Q4_1")
    assert tensors["bf16"] == TensorInfo("bf16", (2, 4), "BF16")


def test_plain_types_are_exact(path: Path) -> None:
    file = GgufFile(path)
    assert torch.equal(file.load("plain"), torch.from_numpy(values(2, 3)))
    assert torch.equal(file.load("half"), torch.from_numpy(values(4).astype(np.float16)))
    assert torch.equal(file.load("bf16"), torch.from_numpy(values(2, 4)).to(torch.bfloat16))


def test_blocks_are_dequantized_as_the_format_defines(path: Path) -> None:
    file = GgufFile(path)
    reader = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    # Q8_0: float16 scale, 32 signed bytes.
    blocks = reader["q8"].reshape(-1, 34)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    expected = (scale * blocks[:, 2:].view(np.int8)).reshape(3, 64)
    assert torch.equal(file.load("q8"), torch.from_numpy(expected))
    # Q4_1: float16 scale and minimum, 16 bytes of which the low nibbles come first.
    blocks = reader["q4"].reshape(-1, 20)
    scale, minimum = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    expected = (scale * nibbles + minimum).reshape(3, 64)
    assert torch.equal(file.load("q4"), torch.from_numpy(expected))
    assert np.abs(expected - values(3, 64)).max() < 0.3


def test_unknown_tensor(path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tensor blk"):
        GgufFile(path).load("blk")


def test_writing_to_a_tensor_leaves_the_file_alone(path: Path) -> None:
    before = path.read_bytes()
    GgufFile(path).load("plain").fill_(0)
    assert path.read_bytes() == before


def test_damage_and_foreign_files(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 3, 20, 60, len(whole) - 40):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"sample\.gguf is not a GGUF file, or is damaged"):
            GgufFile(path)
    path.write_bytes(b"PK\3\4" + whole[4:])
    with pytest.raises(CheckpointError, match="magic"):
        GgufFile(path)
    with pytest.raises(CheckpointError, match="does not exist"):
        GgufFile(tmp_path / "gone.gguf")


def test_without_the_package_the_error_says_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="pip install"):
        GgufFile(path)
