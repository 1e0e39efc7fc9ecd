"""Tables go from shards of a checkpoint into the core, rows joined of their parts."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_cores import tiny_request
from safetensors.torch import load_file, save_file

from flare.contract import TableResource
from flare.corefile import CoreReader, Role, read_contract
from flare.errors import CheckpointError
from flare.prepare import Progress, SafetensorsCheckpoint, TableRule, TensorMap, table_rules
from flare.prepare.session import PreparationSession
from flare_recipe_smollm.loader import LlamaLoader
from flare_recipe_smollm.recipe import RECIPE, TextPrograms

SHARDS = [(40, 12, 3), (24, 12, 3)]
RULE = TableRule(tuple((f"table.{index}.codes", f"table.{index}.scales") for index in range(len(SHARDS))))


def shards() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = {}
    for index, (rows, codes, scales) in enumerate(SHARDS):
        tensors[f"table.{index}.codes"] = torch.randint(0, 256, (rows, codes), dtype=torch.uint8)
        tensors[f"table.{index}.scales"] = torch.rand(rows, scales).to(torch.float8_e4m3fn)
    return tensors


def expected() -> bytes:
    tensors = shards()
    rows = [
        torch.cat([tensors[name].view(torch.uint8) for name in shard], 1)  # by rows, not by parts
        for shard in RULE.shards
    ]
    return torch.cat(rows).numpy().tobytes()


def stored(directory: Path, tensors: dict[str, torch.Tensor]) -> SafetensorsCheckpoint:
    directory.mkdir(exist_ok=True)
    save_file(tensors, directory / "model.safetensors")
    if not (directory / "config.json").exists():
        (directory / "config.json").write_text("{}")
    return SafetensorsCheckpoint(directory)


@pytest.mark.parametrize("piece", [1, 40, table_rules.PIECE_BYTES])
def test_pieces_are_whole_rows_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(table_rules, "PIECE_BYTES", piece)
    checkpoint = stored(tmp_path, shards())
    assert RULE.shape(checkpoint) == (64, 15)
    pieces = list(RULE.pieces(checkpoint))
    assert b"".join(pieces) == expected()
    assert max(len(part) for part in pieces) <= max(piece, 15)


def test_elements_of_any_size(tmp_path: Path) -> None:
    table = torch.randn(5, 6).to(torch.bfloat16)
    checkpoint = stored(tmp_path, {"t": table})
    rule = TableRule((("t",),))
    assert rule.shape(checkpoint) == (5, 12)
    assert b"".join(rule.pieces(checkpoint)) == table.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"table.1.scales": torch.zeros(24, 4, dtype=torch.uint8)}, r"rows of \[15, 16\] bytes"),
        ({"table.1.scales": torch.zeros(23, 3, dtype=torch.uint8)}, "are not rows of one table"),
        ({"table.0.codes": torch.zeros(40, dtype=torch.uint8)}, "are not rows of one table"),
        ({"other": torch.zeros(1)}, "not mapped: other"),
    ],
)
def test_shards_that_do_not_fit(tmp_path: Path, change: dict[str, torch.Tensor], complaint: str) -> None:
    checkpoint = stored(tmp_path, shards() | change)
    with pytest.raises(CheckpointError, match=complaint):
        TensorMap({}, tables={"table": RULE}).check(checkpoint)


class TableLoader(LlamaLoader):
    def tensor_map(self, config: Any) -> TensorMap:
        mapping = super().tensor_map(config)
        return TensorMap(mapping.rules, mapping.ignored, {"tables/grams": RULE})


class TablePrograms(TextPrograms):
    rows = 64

    def compose(self, *args: Any) -> Any:
        parameters = (2, 1, 0, 1, 3, 32, 0)
        table = TableResource(
            name="grams",
            tensor="tables/grams",
            rows=self.rows,
            row_bytes=15,
            lookup="ngram",
            parameters=parameters,
        )
        return dataclasses.replace(TextPrograms.compose(*args), tables=(table,))


def test_a_core_holds_the_table(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path / "c")
    checkpoint = stored(tmp_path / "c", load_file(tiny_checkpoint / "model.safetensors") | shards())
    recipe = replace(RECIPE, loader=TableLoader(), programs=TablePrograms())
    core = tmp_path / "core.safetensors"
    contract = PreparationSession(recipe, tiny_request(), Progress()).prepare(checkpoint, core)
    assert [table.rows for table in contract.tables] == [64]
    with CoreReader(core) as reader:
        assert read_contract(reader) == contract
        assert reader.tensors["tables/grams"].role is Role.TABLE
        assert bytes(reader.load("tables/grams")) == expected()


def test_programs_and_checkpoint_name_the_same_tables(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TablePrograms, "rows", 65)
    shutil.copytree(tiny_checkpoint, tmp_path / "c")
    checkpoint = stored(tmp_path / "c", load_file(tiny_checkpoint / "model.safetensors") | shards())
    recipe = replace(RECIPE, loader=TableLoader(), programs=TablePrograms())
    session = PreparationSession(recipe, tiny_request(), Progress())
    with pytest.raises(CheckpointError, match=r"\(65, 15\).*gives.*\(64, 15\)"):
        session.prepare(checkpoint, tmp_path / "core.safetensors")
