"""A core that rounds inputs to few bits: last bits may move much, and `flare verify` allows for that."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prepared_cores import tiny_request
from rewritten_core import rewrite

from flare.contract import DType
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions
from flare.prepare import CapacityRequest, Progress
from flare.prepare.session import PreparationSession
from flare.testing.plugin import TinyCheckpoints
from flare.verify import Verification
from flare_components.quant import mxfp8, nvfp4
from flare_components.testing import write_quantized_checkpoint
from flare_recipe_qwen.recipe import RECIPE

CAPACITIES = CapacityRequest(
    context=128, concurrency=1, prefill_chunk_size=16, page_tokens=16, snapshot_rows=0
)
EXPERTS = "*.mlp.experts.*"
PROJECTIONS = ("*.linear_attn.in_proj_*", "*.linear_attn.out_proj", "*.self_attn.*_proj")


@pytest.fixture(scope="module")
def core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rounded")
    formats = {EXPERTS: "NVFP4", **dict.fromkeys(PROJECTIONS, "MXFP8")}
    stored = write_quantized_checkpoint(flare_tiny_checkpoint(RECIPE), place / "stored", formats)
    session = PreparationSession(RECIPE, replace(tiny_request(DType.BF16, CAPACITIES)), Progress())
    session.prepare(RECIPE.loader.open(stored), place / "core.safetensors")
    return place / "core.safetensors"


def last_bits(data: bytearray) -> None:
    """Every BF16 number up or down by its last bit, or as it is."""
    bits = np.frombuffer(data, np.uint16)
    data[:] = (bits + np.random.default_rng(0).integers(-1, 2, len(bits))).astype(np.uint16).tobytes()


def test_another_machine_may_round_every_input_otherwise(core: Path, tmp_path: Path) -> None:
    with CoreReader(core) as reader:
        (embeddings,) = (name for name in reader.tensors if name.endswith("embed_tokens.weight"))
        contract = read_contract(reader)

    def other_machine(document: dict[str, Any]) -> None:
        document["identity"]["instruction_set"] = "x86_64/OTHER"

    moved = rewrite(
        core, tmp_path / "moved.core.safetensors", contract=other_machine, tensors={embeddings: last_bits}
    )
    verification = Verification(moved, options=LoadOptions())
    try:
        report = verification.run()
    finally:
        verification.close()
    (oracle,) = (check for check in report.checks if check.name == "oracle")
    assert report.passed, report
    assert oracle.facts is not None
    recorded = contract.provenance.oracle
    assert recorded is not None
    assert recorded.bound is not None
    assert "inputs rounded to few bits" in recorded.bound_basis
    # More than the roundings of BF16 explain.
    assert oracle.facts["largest_difference"] > recorded.bound * 2.0**-8 / (math.sqrt(2) * 0.095)


@pytest.mark.parametrize(("quantized", "error"), [(nvfp4, 0.095), (mxfp8, 0.027)])
def test_the_errors_that_bounds_are_made_of(quantized: Any, error: float) -> None:
    values = torch.randn(512, 256, generator=torch.Generator().manual_seed(0))
    found = (quantized.decode(quantized.encode(values)) - values).norm() / values.norm()
    assert abs(float(found) / error - 1) < 0.03
