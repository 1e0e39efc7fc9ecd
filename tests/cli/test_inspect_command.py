"""`flare inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flare_command import failure, flare
from rewritten_core import rewrite

from flare.contract import PreparedContract


def test_json_holds_the_whole_contract(tiny_core: Path) -> None:
    document = json.loads(flare("inspect", tiny_core, "--json").stdout)
    contract = PreparedContract.model_validate_json(json.dumps(document["contract"]))

    assert document["file"]["bytes"] == tiny_core.stat().st_size
    assert document["file"]["path"] == str(tiny_core)
    assert len(document["file"]["digest"]) == 64
    assert sum(document["file"]["roles"].values()) <= tiny_core.stat().st_size
    assert contract.capacities.context == 256
    assert contract.capacities.concurrency == 4
    assert contract.page.page_tokens == 16
    assert contract.identity.device == "cpu"
    assert contract.provenance.memory_ledger["weights"] > 0
    assert {"LlamaAttention", "LlamaMLP"} <= dict(contract.provenance.replaced_modules).keys()
    assert any("LlamaDecoderLayer" in name for name in contract.provenance.retained_modules)


def test_the_page_for_people_names_every_program_and_module(tiny_core: Path) -> None:
    contract = json.loads(flare("inspect", tiny_core, "--json").stdout)["contract"]
    page = flare("inspect", tiny_core).stdout

    assert "256 tokens" in page
    for program in contract["programs"]:
        assert program["name"] in page
    for section in ("Identity", "Capacities", "State", "Memory when loaded", "File", "Programs"):
        assert section in page.splitlines()
    for name in contract["provenance"]["retained_modules"]:
        assert name in page
    for name, why in dict(contract["provenance"]["replaced_modules"]).items():
        assert any(name in line and why in line for line in page.splitlines())


def test_the_state_of_a_model_is_shown_before_its_checkpoint_is_there() -> None:
    page = flare("inspect", "--plan", "qwen3.8-flash").stdout
    document = json.loads(flare("inspect", "--plan", "qwen3.8-flash", "--json").stdout)
    assert document["token_bytes"] == 25344
    assert document["schemes"]["memory"] == {"kind": "recurrent", "token_bytes": 0, "row_bytes": 108 << 20}
    assert set(document["schemes"]) <= {line.split()[0] for line in page.splitlines() if line}
    assert "A token: 25344 bytes" in page
    assert "the recipe of smollm2-135m has no published configuration" in failure(
        "inspect", "--plan", "smollm2-135m"
    )


def test_a_core_or_a_plan_is_inspected(tiny_core: Path) -> None:
    for wrong in ((), (tiny_core, "--plan", "qwen3.8-flash")):
        result = flare("inspect", *wrong)
        assert result.returncode == 2
        assert "give a core file, or --plan and a model" in result.stderr


def test_kernels_chosen_by_measurement_are_listed_with_their_times(tiny_core: Path, tmp_path: Path) -> None:
    assert "Kernels chosen by measurement" not in flare("inspect", tiny_core).stdout
    chosen = {
        "operator": "linear",
        "shape": "(1, 64, 96)",
        "chosen": "row [2]",
        "microseconds": {"library": 9.04, "row [2]": 7.25, "row [4]": 8.5},
    }

    def tuned(contract: dict[str, Any]) -> None:
        contract["provenance"]["tuned"] = [chosen]

    page = flare("inspect", rewrite(tiny_core, tmp_path / "core", contract=tuned)).stdout
    (line,) = (line.split() for line in page.splitlines() if "(1, 64, 96)" in line)
    assert " ".join(line) == "linear (1, 64, 96) row [2] 7.2 row [4] 8.5, library 9.0"


def test_a_missing_core(tmp_path: Path) -> None:
    path = tmp_path / "missing"

    assert failure("inspect", path) == f"{path}: No such file or directory"


def test_a_file_that_is_no_core(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("nothing of a core in here")

    assert "not a safetensors file" in failure("inspect", path)
