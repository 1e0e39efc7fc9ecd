"""The hub's layout: one file or an index, every header checked, tensors mapped one at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flare.errors import CheckpointError
from flare.prepare.checkpoint_safetensors import INDEX, SafetensorsCheckpoint
from flare.recipes import LocalCheckpoint

CONFIG = {"architectures": ["SomeForCausalLM"], "hidden_size": 4}


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "a.weight": torch.randn(3, 4).to(torch.bfloat16),
        "b.weight": torch.randn(2, 3, 2),
        "c.scale": torch.randn(5).to(torch.float8_e4m3fn),
        "d.flag": torch.tensor([True, False, True]),
        "e.index": torch.arange(7, dtype=torch.int64),
        "f.scalar": torch.tensor(2.5, dtype=torch.float16),
        "g.empty": torch.zeros(0, 3),
    }


def write(directory: Path, content: Mapping[str, torch.Tensor], file: str = "model.safetensors") -> None:
    directory.mkdir(exist_ok=True)
    save_file(dict(content), directory / file, metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(CONFIG))


def write_index(directory: Path, places: Mapping[str, str]) -> None:
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict(places)}))


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_every_tensor_survives_bit_by_bit(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    checkpoint = SafetensorsCheckpoint(tmp_path)
    assert checkpoint.config == CONFIG
    assert set(checkpoint.tensors) == set(tensors())
    for name, expected in tensors().items():
        loaded = checkpoint.load(name)
        assert (loaded.dtype, loaded.shape) == (expected.dtype, expected.shape)
        assert checkpoint.tensors[name].shape == tuple(expected.shape)
        assert bits(loaded) == bits(expected)
    assert checkpoint.tensors["a.weight"].dtype == "BF16"


def test_an_index_over_two_files(tmp_path: Path) -> None:
    names = list(tensors())
    first, second = {n: tensors()[n] for n in names[:3]}, {n: tensors()[n] for n in names[3:]}
    write(tmp_path, first, "model-1-of-2.safetensors")
    write(tmp_path, second, "model-2-of-2.safetensors")
    places = dict.fromkeys(first, "model-1-of-2.safetensors") | dict.fromkeys(
        second, "model-2-of-2.safetensors"
    )
    write_index(tmp_path, places)
    checkpoint = SafetensorsCheckpoint(tmp_path)
    assert set(checkpoint.tensors) == set(names)
    assert all(bits(checkpoint.load(name)) == bits(tensors()[name]) for name in names)
    write_index(tmp_path, {**places, "z.weight": "model-1-of-2.safetensors"})
    with pytest.raises(CheckpointError, match=r"no file holds: z\.weight"):
        SafetensorsCheckpoint(tmp_path)
    write_index(tmp_path, {**places, "a.weight": "model-2-of-2.safetensors"})
    with pytest.raises(CheckpointError, match=r"model-1-of-2.safetensors holds a\.weight"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "model-2-of-2.safetensors").unlink()
    write_index(tmp_path, places)
    with pytest.raises(CheckpointError, match=r"model-2-of-2\.safetensors does not exist"):
        SafetensorsCheckpoint(tmp_path)


@pytest.mark.parametrize("file", ["../model.safetensors", "/model.safetensors", "sub/model.safetensors"])
def test_an_index_stays_in_its_directory(tmp_path: Path, file: str) -> None:
    write(tmp_path, tensors())
    write_index(tmp_path, dict.fromkeys(tensors(), file))
    with pytest.raises(CheckpointError, match="not a file beside it"):
        SafetensorsCheckpoint(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone does not exist"):
        SafetensorsCheckpoint(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        SafetensorsCheckpoint(tmp_path)
    write(tmp_path, tensors(), "one.safetensors")
    write(tmp_path, tensors(), "two.safetensors")
    with pytest.raises(CheckpointError, match="2 safetensors files and no model"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no tensor a\.wieght") as raised:
        SafetensorsCheckpoint(tmp_path).load("a.wieght")
    assert raised.value.field == "a.wieght"
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        SafetensorsCheckpoint(tmp_path)


def test_truncated_at_every_region(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for length in (0, 7, 8, 100, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            SafetensorsCheckpoint(tmp_path)
    file.write_bytes(whole + b"x")
    with pytest.raises(CheckpointError, match="its header describes"):
        SafetensorsCheckpoint(tmp_path)


def raw(file: Path, header: object, data: bytes) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]},
        {"dtype": "F32", "data_offsets": [0, 4]},
        {"dtype": 3, "shape": [1], "data_offsets": [0.0, 4.0]},
        "nonsense",
    ],
)
def test_impossible_headers(tmp_path: Path, entry: object) -> None:
    (tmp_path / "config.json").write_text("{}")
    raw(tmp_path / "model.safetensors", {"x": entry}, bytes(8))
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        SafetensorsCheckpoint(tmp_path)


def test_an_unreadable_element_type_fails_only_when_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    entries = {
        "odd": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]},
        "unaligned": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    raw(tmp_path / "model.safetensors", entries, b"\0" + torch.tensor([7.0]).numpy().tobytes())
    checkpoint = SafetensorsCheckpoint(tmp_path)
    assert checkpoint.load("unaligned").tolist() == [7.0]
    with pytest.raises(CheckpointError, match="odd is stored as F4"):
        checkpoint.load("odd")


def test_loading_maps_and_lets_go(tmp_path: Path) -> None:
    write(tmp_path, {"big": torch.zeros(1 << 20)})
    file = str(tmp_path / "model.safetensors")
    checkpoint = SafetensorsCheckpoint(tmp_path)
    tensor = checkpoint.load("big")
    assert file in Path("/proc/self/maps").read_text()
    tensor.fill_(1)
    assert checkpoint.load("big").sum() == 0  # writing to a loaded tensor leaves the file alone
    del tensor
    assert file not in Path("/proc/self/maps").read_text()


def test_assets(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    assert SafetensorsCheckpoint(tmp_path).assets.tokenizer is None
    (tmp_path / "tokenizer.json").write_bytes(b'{"model": {}}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2}')
    (tmp_path / "special_tokens_map.json").write_text(
        '{"bos_token": "old", "pad_token": {"content": "<pad>"}}'
    )
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    settings = {"bos_token": "<s>", "unk_token": None, "add_bos_token": False, "chat_template": named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assets = SafetensorsCheckpoint(tmp_path).assets
    assert assets.tokenizer == b'{"model": {}}'
    assert assets.generation_config == {"eos_token_id": 2}
    assert assets.special_tokens == {"bos_token": "<s>", "pad_token": "<pad>"}
    assert assets.chat_template == "plain"
    (tmp_path / "chat_template.jinja").write_text("äußere Datei", encoding="utf-8")
    assert SafetensorsCheckpoint(tmp_path).assets.chat_template == "äußere Datei"


def test_the_fingerprint_follows_everything_it_covers(tmp_path: Path) -> None:
    write(tmp_path, tensors())

    def fingerprint(revision: str = "r") -> str:
        return SafetensorsCheckpoint(LocalCheckpoint(path=tmp_path, revision=revision, uri="u")).fingerprint()

    seen = {fingerprint()}
    assert fingerprint() in seen
    seen.add(fingerprint("other revision"))
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 8}))
    seen.add(fingerprint())
    (tmp_path / "chat_template.jinja").write_text("template")
    seen.add(fingerprint())
    save_file(
        {**tensors(), "a.weight": torch.zeros(4, 3, dtype=torch.bfloat16)}, tmp_path / "model.safetensors"
    )
    seen.add(fingerprint())
    assert len(seen) == 5
    assert all(len(value) == 64 for value in seen)
