"""The session's promises: names in errors, numbers before loading, all or nothing on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_cores import TINY, prepare_tiny, tiny_request
from safetensors.torch import load_file, save_file

from flare.contract import DType, ProgramKind, ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRunner
from flare.errors import CapacityError, CheckpointError
from flare.prepare import CapacityRequest, Checkpoint
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationSession
from flare_recipe_smollm.recipe import RECIPE


class Watched(Checkpoint):
    """Records the tensors that are read; fails at `fail_at`."""

    def __init__(self, inner: Checkpoint, fail_at: str | None = None) -> None:
        self.config, self.tensors = inner.config, inner.tensors
        self.assets, self.revision = inner.assets, inner.revision
        self.inner, self.fail_at = inner, fail_at
        self.read: list[str] = []

    def load(self, name: str) -> torch.Tensor:
        if name == self.fail_at:
            raise KeyboardInterrupt
        self.read.append(name)
        return self.inner.load(name)


def prepare(checkpoint: Checkpoint, destination: Path, capacities: CapacityRequest = TINY) -> None:
    PreparationSession(RECIPE, tiny_request(capacities=capacities), Progress()).prepare(
        checkpoint, destination
    )


@pytest.fixture
def watched(tiny_checkpoint: Path) -> Watched:
    return Watched(RECIPE.loader.open(tiny_checkpoint))


def altered(checkpoint: Path, target: Path, change: dict[str, torch.Tensor | None]) -> Checkpoint:
    """The checkpoint with tensors added, exchanged or (None) left out."""
    target.mkdir()
    tensors: Mapping[str, Any] = load_file(checkpoint / "model.safetensors") | change
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (target / name).write_bytes((checkpoint / name).read_bytes())
    return RECIPE.loader.open(target)


QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({QUERY: None}, QUERY),
        ({"model.layers.9.oddity": torch.zeros(1)}, "model.layers.9.oddity"),
        ({QUERY: torch.zeros(64, 63)}, "model.layers.1.self_attn.qkv_proj.weight"),
        ({"model.norm.weight": torch.zeros(65)}, "model.norm.weight"),
        (
            {"model.norm.weight": torch.ones(64).to(torch.float8_e4m3fn)},
            "model.norm.weight: the checkpoint gives torch.float8_e4m3fn",
        ),
    ],
    ids=["missing", "unknown", "does not stack", "misshapen", "codes without scales"],
)
def test_a_wrong_tensor_is_named(
    tiny_checkpoint: Path, tmp_path: Path, change: dict[str, torch.Tensor | None], named: str
) -> None:
    checkpoint = altered(tiny_checkpoint, tmp_path / "c", change)
    with pytest.raises(CheckpointError, match=re.escape(named)):
        prepare(checkpoint, tmp_path / "out.core.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("capacities", "message"),
    [
        (replace(TINY, context=513), "context 513 exceeds the model's limit of 512"),
        (
            replace(TINY, memory=100_000),
            r"memory 97\.66 KiB cannot hold .*one context of 256 tokens .17 pages",
        ),
    ],
)
def test_what_cannot_fit_fails_before_any_weight_is_read(
    watched: Watched, tmp_path: Path, capacities: CapacityRequest, message: str
) -> None:
    with pytest.raises(CapacityError, match=message):
        prepare(watched, tmp_path / "out.core.safetensors", capacities)
    assert watched.read == []
    assert not list(tmp_path.iterdir())


def test_the_memory_named_in_the_error_is_enough(watched: Watched, tmp_path: Path) -> None:
    out = tmp_path / "out.core.safetensors"
    with pytest.raises(CapacityError) as caught:
        prepare(watched, out, replace(TINY, memory=1))
    needed = re.search(r"at least ([0-9.]+) KiB is needed", str(caught.value))
    assert needed is not None
    memory = int((float(needed[1]) + 0.01) * 1024)
    prepare(watched, out, replace(TINY, memory=memory))
    reader = CoreReader(out)
    contract = read_contract(reader)
    assert contract.capacities.pages == 17  # one context, and the null page
    ledger = load_device(contract, reader).ledger
    assert sum(ledger.values()) <= memory, ledger


@pytest.mark.parametrize(
    "change",
    [
        {"context": 1},
        {"context": 0},
        {"context": -5},
        {"concurrency": 0},
        {"prefill_chunk_size": 0},
        {"page_tokens": 0},
        {"snapshot_rows": -1},
    ],
)
def test_impossible_requests_name_the_setting(change: dict[str, int]) -> None:
    (name,) = change
    with pytest.raises(CapacityError) as caught:
        CapacityRequest(**change)
    assert caught.value.field == name


def test_an_interrupted_preparation_leaves_the_destination_as_it_was(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.core.safetensors"
    interrupted = Watched(RECIPE.loader.open(tiny_checkpoint), fail_at="model.layers.1.mlp.down_proj.weight")
    with pytest.raises(KeyboardInterrupt):
        prepare(interrupted, out)
    assert interrupted.read  # it was in the middle of the weights
    assert not list(tmp_path.iterdir())
    out.write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        prepare(interrupted, out)
    assert out.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == [out.name]


def test_every_tensor_is_read_once(watched: Watched, tmp_path: Path) -> None:
    prepare(watched, tmp_path / "out.core.safetensors")
    assert sorted(watched.read) == sorted(watched.tensors)


def test_smallest_context(watched: Watched, tmp_path: Path) -> None:
    prepare(watched, tmp_path / "out.core.safetensors", replace(TINY, context=2, concurrency=1))
    contract = read_contract(CoreReader(tmp_path / "out.core.safetensors"))
    assert contract.capacities.prefill_tokens == (2,)
    assert contract.provenance.oracle is not None
    assert len(contract.provenance.oracle.tokens) == 1


@pytest.mark.parametrize(("asked", "size"), [(None, 32), (16, 16)])
def test_the_recipe_chooses_the_page_where_nobody_does(
    tiny_checkpoint: Path, tmp_path: Path, asked: int | None, size: int
) -> None:
    request = replace(tiny_request(DType.F32, replace(TINY, page_tokens=asked)), calibrate=False)
    session = PreparationSession(replace(RECIPE, page_tokens=32), request, Progress())
    contract = session.prepare(RECIPE.loader.open(tiny_checkpoint), tmp_path / "core")
    assert contract.page.page_tokens == size


@pytest.mark.parametrize("core", ["tiny_core", "tiny_core_bf16"])
def test_the_core_reproduces_its_oracle_in_any_slot(request: pytest.FixtureRequest, core: str) -> None:
    reader = CoreReader(request.getfixturevalue(core))
    contract = read_contract(reader)
    oracle = contract.provenance.oracle
    assert oracle is not None
    assert len(oracle.tokens) == 16
    runner = DirectRunner(load_device(contract, reader))
    for slot in (0, 3):
        live = runner.start(slot, oracle.prompt, seed=oracle.seed, temperature=oracle.temperature)
        runner.prefill_all(live, oracle.prompt)
        while len(live.tokens) < len(oracle.tokens):
            assert runner.decode([live], "decode.1")[0]
        assert tuple(live.tokens) == oracle.tokens


def test_costs_identity_and_provenance_are_recorded(tiny_core: Path) -> None:
    contract = read_contract(CoreReader(tiny_core))
    for program in contract.programs:
        measured = program.kind in (ProgramKind.PREFILL, ProgramKind.DECODE)
        assert (program.cost_us is not None) == measured, program.name
    assert contract.identity.device == "cpu"
    assert set(contract.identity.versions) == {"flare-core", "flare-components", "torch", "transformers"}
    assert (
        "transformers.models.llama.modeling_llama.LlamaDecoderLayer" in contract.provenance.retained_modules
    )
    assert set(contract.provenance.replaced_modules) == {
        "LlamaAttention",
        "LlamaMLP",
        "LlamaRMSNorm",
        "LlamaModel",
    }


def test_fingerprints_tell_contents_and_requests_apart(
    tiny_checkpoint: Path, tiny_core: Path, tiny_core_bf16: Path, tmp_path: Path
) -> None:
    again = prepare_tiny(tiny_checkpoint, DType.F32, tmp_path / "again.core.safetensors")
    other = RECIPE.oracle.tiny_checkpoint(tmp_path / "other", seed=1)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-6}))
    changed = prepare_tiny(other, DType.F32, tmp_path / "changed.core.safetensors")
    first, same, *different = (
        read_contract(CoreReader(path)).identity.fingerprint
        for path in (tiny_core, again, tiny_core_bf16, changed)
    )
    assert first == same
    assert len({first, *different}) == 3


def test_probes_never_change_what_is_drawn(tiny_core: Path) -> None:
    reader = CoreReader(tiny_core)
    device = load_device(read_contract(reader), reader)
    assert isinstance(device, CpuDevice)
    drawn = []
    for probing in (False, True):
        runner = DirectRunner(device)
        request = runner.start(0, [5, 6, 7], seed=9)
        values = runner.prefill_values(request, [5, 6, 7], sample=True)
        upload = runner.staging(runner.programs["prefill.16"], values)
        assert ValueSource.TOKEN_IDS in values
        if probing:
            assert set(device.probe("prefill.16", upload)) == {"hidden", "logits"}
        else:
            device.submit("prefill.16", upload)
        drawn.append(int(device.storage("state/pending").view(torch.int32)[0]))
    assert drawn[0] == drawn[1] >= 0
