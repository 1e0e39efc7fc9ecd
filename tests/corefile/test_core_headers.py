"""Files that are not cores, newer cores, and headers that are whole but impossible."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_samples import forge, forge_text, split
from safetensors.numpy import save_file

from flare.contract import DType
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec
from flare.corefile.header import seal
from flare.errors import CapacityError, CoreError

Document = dict[str, Any]


def refuse(path: Path, raw: bytes, match: str) -> CoreError:
    path.write_bytes(raw)
    with pytest.raises(CoreError, match=match) as caught:
        CoreReader(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_a_checkpoint_is_not_a_core(tmp_path: Path) -> None:
    save_file({"w": np.zeros(4, np.float32)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CoreError, match="not a runtime core"):
        CoreReader(tmp_path / "model.safetensors")


def test_a_header_length_beyond_reason_is_not_believed(tmp_path: Path) -> None:
    refuse(tmp_path / "other", (2**62).to_bytes(8, "little") + b"{" * 64, "not a safetensors file")


@pytest.mark.parametrize("raw", [b"GGUF\3\0\0\0" + b"\0" * 64, b"PK\3\4" + b"x" * 64, b"\0" * 64, b"{" * 64])
def test_other_files_are_not_cores(tmp_path: Path, raw: bytes) -> None:
    refuse(tmp_path / "other", raw, "not a runtime core|truncated")


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CoreReader(tmp_path / "none")


def test_a_newer_container_says_so_before_anything_else_is_read(tmp_path: Path, core_bytes: bytes) -> None:
    room = 8 + int.from_bytes(core_bytes[:8], "little")
    raw = core_bytes[:8] + core_bytes[8:room].replace(b'"flare.core":"1"', b'"flare.core":"2"')
    error = refuse(tmp_path / "new", raw + core_bytes[room:], "made by a newer version: container 2")
    assert error.field == "flare.core"


def test_unknown_metadata_is_ignored(tmp_path: Path, core_bytes: bytes) -> None:
    (tmp_path / "c").write_bytes(forge(core_bytes, lambda d: d["__metadata__"].update(added="later")))
    with CoreReader(tmp_path / "c") as reader:
        assert reader.verify() == ()


def entry(name: str, **changes: Any) -> Callable[[Document], object]:
    return lambda document: document[name].update(changes)


def metadata(key: str, value: object) -> Callable[[Document], object]:
    return lambda document: document["__metadata__"].update({key: value})


def rename(old: str, new: str) -> Callable[[Document], object]:
    return lambda document: document.update({new: document.pop(old)})


def shift(name: str, by: int) -> Callable[[Document], object]:
    def change(document: Document) -> None:
        begin, end = document[name]["data_offsets"]
        document[name]["data_offsets"] = [begin + by, end + by]

    return change


BLOCKS = {"weight": 4194304, "table": 65536, "program": 4194304, "asset": 4194304}

IMPOSSIBLE: dict[str, tuple[Callable[[Document], object], str, str]] = {
    "shape": (entry("weights/norm", shape=[8]), "not the span", "weights/norm"),
    "huge shape": (entry("weights/norm", shape=[2**62, 2**62]), "not the span", "weights/norm"),
    "negative": (entry("weights/norm", shape=[-7]), "list of sizes", "weights/norm"),
    "boolean": (entry("weights/norm", shape=[True, 7]), "list of sizes", "weights/norm"),
    "fraction": (entry("weights/norm", shape=[7.0]), "list of sizes", "weights/norm"),
    "offsets": (entry("weights/norm", data_offsets=[0, 28, 56]), "not the span", "weights/norm"),
    "reversed": (entry("weights/norm", data_offsets=[28, 0]), "not the span", "weights/norm"),
    "dtype": (entry("weights/norm", dtype="F4"), "unknown dtype", "weights/norm"),
    "dtype list": (entry("weights/norm", dtype=["F32"]), "unknown dtype", "weights/norm"),
    "extra key": (entry("weights/norm", code="x"), "not a tensor", "weights/norm"),
    "misaligned": (shift("weights/norm", 4), "misaligned", "weights/norm"),
    "overlap": (shift("weights/norm", -64), "overlaps", "weights/norm"),
    "hole": (lambda d: d.pop("pad/0000"), "hole", "weights/scale"),
    "typed pad": (rename("weights/norm", "pad/9999"), "not a pad", "pad/9999"),
    "large pad": (rename("table/ngrams", "pad/9999"), "not a pad", "pad/9999"),
    "rank": (entry("weights/f8", shape=[33] + [1] * 64), "list of sizes", "weights/f8"),
    "climbing name": (rename("weights/norm", "../../etc/passwd"), "not a tensor name", "name"),
    "absolute name": (rename("weights/norm", "/etc/passwd"), "not a tensor name", "name"),
    "reserved name": (rename("weights/norm", "checksum/other"), "reserved", "checksum/other"),
    "no role": (rename("weights/norm", "weights/other"), "no role", "weights/other"),
    "unknown role": (metadata("flare.roles", '{"code":["weights/norm"]}'), "not a role", "flare.roles"),
    "role twice": (metadata("flare.roles", '{"asset":["a","a"]}'), "twice", "flare.roles"),
    "role list": (metadata("flare.roles", "[]"), "not a JSON object", "flare.roles"),
    "no blocks": (metadata("flare.blocks", "{}"), "block size", "flare.blocks"),
    "block 0": (metadata("flare.blocks", json.dumps(BLOCKS | {"table": 0})), "block size", "flare.blocks"),
    "other blocks": (
        metadata("flare.blocks", json.dumps(BLOCKS | {"table": 4096})),
        "not the digests of",
        "checksum/sha256",
    ),
    "nan": (metadata("flare.blocks", '{"table":NaN}'), "not JSON", "flare.blocks"),
    "deep": (metadata("flare.blocks", "[" * 4000), "not JSON", "flare.blocks"),
    "digest": (metadata("flare.checksums", "00"), "not a SHA-256", "flare.checksums"),
    "other digest": (metadata("flare.checksums", "00" * 32), "checksums are damaged", "checksum/sha256"),
    "no contract": (lambda d: d["__metadata__"].pop("flare.contract"), "lacks", "flare.contract"),
    "contract type": (metadata("flare.contract", {}), "lacks", "flare.contract"),
    "no checksums": (rename("checksum/sha256", "checksum/md5"), "reserved", "checksum/md5"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_header_is_refused_by_field(tmp_path: Path, core_bytes: bytes, case: str) -> None:
    change, match, field = IMPOSSIBLE[case]
    assert refuse(tmp_path / "c", forge(core_bytes, change), match).field == field


def test_a_role_without_tensor_is_refused(tmp_path: Path, core_bytes: bytes) -> None:
    def add(document: Document) -> None:
        roles = json.loads(document["__metadata__"]["flare.roles"])
        roles["asset"].append("asset/gone")
        document["__metadata__"]["flare.roles"] = json.dumps(roles)

    assert refuse(tmp_path / "c", forge(core_bytes, add), "not in the file").field == "asset/gone"


def test_checksums_that_do_not_end_the_file_are_refused(tmp_path: Path, core_bytes: bytes) -> None:
    document, data = split(core_bytes)
    end = document["checksum/sha256"]["data_offsets"][1]
    document["pad/9999"] = {"dtype": "U8", "shape": [64], "data_offsets": [end, end + 64]}
    text = json.dumps(document, separators=(",", ":")).encode()
    raw = forge_text(core_bytes, text, data + bytes(64))
    assert refuse(tmp_path / "c", raw, "do not end the file").field == "checksum/sha256"


def test_data_off_a_page_is_refused(tmp_path: Path, core_bytes: bytes) -> None:
    document, data = split(core_bytes)
    document["__metadata__"]["flare.header"] = "0" * 64
    text = json.dumps(document, separators=(",", ":")).encode()
    refuse(tmp_path / "c", seal(text, len(core_bytes) - len(data) + 64) + data, "not on a page")


def test_a_refused_file_is_closed(tmp_path: Path, core_bytes: bytes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        refuse(tmp_path / "c", core_bytes[:-1], "truncated")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path, core_bytes: bytes) -> None:
    document, data = split(core_bytes)
    norm = json.dumps({"weights/norm": document["weights/norm"]})[1:-1]
    text = json.dumps(document, separators=(",", ":"))[:-1] + "," + norm + "}"
    refuse(tmp_path / "c", forge_text(core_bytes, text.encode(), data), "occurs twice")


def test_a_header_that_is_not_json_is_refused(tmp_path: Path, core_bytes: bytes) -> None:
    document, data = split(core_bytes)
    text = json.dumps(document, separators=(",", ":"))[:-1]
    refuse(tmp_path / "c", forge_text(core_bytes, text.encode(), data), "not JSON")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a b", "a\nb", "é", "x" * 256])
def test_writer_refuses_names_a_reader_would(tmp_path: Path, name: str) -> None:
    with pytest.raises(CoreError, match="not a tensor name"):
        CoreWriter(tmp_path / "c", [TensorSpec(name, DType.U8, (1,), Role.WEIGHT)])


@pytest.mark.parametrize("name", ["pad/0000", "checksum/sha256"])
def test_writer_refuses_reserved_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(CoreError, match="reserved"):
        CoreWriter(tmp_path / "c", [TensorSpec.document(name, 1)])


def test_writer_refuses_a_repeated_name(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match="two tensors"):
        CoreWriter(tmp_path / "c", [TensorSpec.document("a", 1), TensorSpec.document("a", 2)])


def test_a_header_beyond_what_readers_accept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match="readers accept"):
        CoreWriter(tmp_path / "c", [], header_budget_bytes=100_000_000)
    assert list(tmp_path.iterdir()) == []
