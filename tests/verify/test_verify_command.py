"""`flare verify`: whole cores pass, and each kind of damage or change is found by the check it belongs to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewritten_core import rewrite

from flare.contract import FORMAT_VERSION, DType, PreparedContract
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec, read_contract
from flare.device import LoadOptions, load_device
from flare.prepare.calibrate import record_oracle
from flare.testing.hash_model import HashModel
from flare.verify import NAMES, Check, Outcome, Report, Verification

FLARE = str(Path(sys.executable).with_name("flare"))
Document = dict[str, Any]


def verify(core: Path, threads: int | None = None) -> Report:
    verification = Verification(core, options=LoadOptions(threads=threads))
    try:
        return verification.run()
    finally:
        verification.close()


def named(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def facts(report: Report) -> dict[str, Any]:
    found = named(report, "oracle").facts
    assert found is not None, report
    return found


def oracle_of(document: Document) -> Document:
    found: Document = document["provenance"]["oracle"]
    return found


def other_instruction_set(document: Document) -> None:
    document["identity"]["instruction_set"] = "x86_64/OTHER"


def largest_weight(core: Path) -> str:
    """A projection of the last layer: it matters for every token."""
    with CoreReader(core) as reader:
        weights = [s for s in reader.tensors.values() if s.role is Role.WEIGHT and len(s.shape) == 2]
        return next(spec.name for spec in weights if "layers.1" in spec.name and "qkv" in spec.name)


@pytest.fixture(params=["tiny_core", "tiny_core_bf16"])
def core(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="module")
def sim_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hash model with an oracle; its programs report no log-probabilities."""
    image = HashModel().build()
    path = tmp_path_factory.mktemp("sim") / "hash.core.safetensors"
    specs = [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in image.tensors.items()]
    with CoreWriter(path, specs) as writer:
        for name, data in image.tensors.items():
            writer.write(name, data)
        device = load_device(image.contract, writer)
        oracle = record_oracle(device, [5, 6, 7, 8, 9])
        device.close()
        provenance = image.contract.provenance.model_copy(update={"oracle": oracle})
        writer.seal(image.contract.model_copy(update={"provenance": provenance}).model_dump_json())
    return path


def test_a_whole_core_passes_to_the_token(core: Path) -> None:
    # With as many threads as preparation had: another number sums in another order.
    with CoreReader(core) as reader:
        oracle = read_contract(reader).provenance.oracle
    assert oracle is not None
    threads = oracle.conditions.get("threads")
    report = verify(core, threads=int(threads) if threads else None)

    assert report.passed, report
    assert [check.name for check in report.checks] == list(NAMES)
    assert {check.outcome for check in report.checks} == {Outcome.PASSED}
    assert facts(report)["comparison"] == "exact"
    assert facts(report)["tokens"] == 16


def test_a_sim_core_is_compared_by_its_tokens(sim_core: Path, tmp_path: Path) -> None:
    assert facts(verify(sim_core))["comparison"] == "exact"

    def other_token(document: Document) -> None:
        oracle_of(document)["tokens"][3] ^= 1

    report = verify(rewrite(sim_core, tmp_path / "altered.core.safetensors", contract=other_token))
    assert "token 3 is" in named(report, "oracle").detail
    assert not report.passed


def test_a_damaged_tensor_is_named(core: Path, tmp_path: Path) -> None:
    name = largest_weight(core)
    raw = bytearray(core.read_bytes())
    room = 8 + int.from_bytes(raw[:8], "little")
    raw[room + json.loads(raw[8:room])[name]["data_offsets"][0] + 100] ^= 1
    damaged = tmp_path / "damaged.core.safetensors"
    damaged.write_bytes(raw)

    report = verify(damaged)

    check = named(report, "checksums")
    assert (check.outcome, check.field) == (Outcome.FAILED, name)
    assert name in check.detail
    assert named(report, "oracle").outcome is Outcome.SKIPPED


def flip_sign(data: bytearray) -> None:
    """The highest byte of one number: little-endian, so the last of two or four."""
    data[len(data) // 2 + 3] ^= 0x80


def test_one_changed_weight_byte_under_right_checksums_is_caught(core: Path, tmp_path: Path) -> None:
    changed = rewrite(core, tmp_path / "changed.core.safetensors", tensors={largest_weight(core): flip_sign})

    report = verify(changed)

    assert named(report, "checksums").outcome is Outcome.PASSED
    assert named(report, "oracle").outcome is Outcome.FAILED, report
    assert named(report, "oracle").field == "provenance.oracle"


def test_an_altered_token_is_caught(core: Path, tmp_path: Path) -> None:
    def alter(document: Document) -> None:
        tokens = oracle_of(document)["tokens"]
        tokens[-1] = (tokens[-1] + 1) % 259

    report = verify(rewrite(core, tmp_path / "altered.core.safetensors", contract=alter))

    assert named(report, "oracle").outcome is Outcome.FAILED


def test_another_instruction_set_is_compared_within_bounds(core: Path, tmp_path: Path) -> None:
    report = verify(rewrite(core, tmp_path / "other.core.safetensors", contract=other_instruction_set))

    assert report.passed
    assert facts(report)["comparison"] == "bounded"
    assert "instruction set" in facts(report)["differing_conditions"][0]
    assert "OTHER" in named(report, "identity").detail


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the limits are those of x86-64")
def test_kernels_of_an_older_processor_pass_within_bounds(core: Path) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    result = subprocess.run(
        [FLARE, "verify", core, "--json"], capture_output=True, text=True, timeout=120, env=environment
    )

    assert result.returncode == 0, result.stdout + result.stderr
    oracle = json.loads(result.stdout)["checks"][-1]
    assert oracle["comparison"] == "bounded"
    assert oracle["largest_difference"] > 0.0  # it was other arithmetic


def noisy(dtype: DType, relative: float) -> Callable[[bytearray], None]:
    """Random errors of about `relative` in every weight of a tensor."""

    def change(data: bytearray) -> None:
        noise = 1 + relative * np.random.default_rng(0).standard_normal(len(data) // dtype.itemsize)
        if dtype is DType.BF16:
            values = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
            bits = (values.view(np.float32) * noise).astype(np.float32).view(np.uint32) + 0x8000
            data[:] = (bits >> 16).astype(np.uint16).tobytes()
        else:
            data[:] = (np.frombuffer(data, np.float32) * noise).astype(np.float32).tobytes()

    return change


def test_weights_that_are_off_are_outside_the_bounds(core: Path, tmp_path: Path) -> None:
    with CoreReader(core) as reader:
        weights = [s for s in reader.tensors.values() if s.role is Role.WEIGHT and len(s.shape) == 2]
    relative = 0.05 if weights[0].dtype is DType.BF16 else 1e-5
    changed = rewrite(
        core,
        tmp_path / "off.core.safetensors",
        contract=other_instruction_set,
        tensors={spec.name: noisy(spec.dtype, relative) for spec in weights},
    )

    report = verify(changed)

    assert facts(report)["comparison"] == "bounded"
    assert named(report, "oracle").outcome is Outcome.FAILED


def test_tokens_that_fall_the_other_way_change_nothing_else(core: Path, tmp_path: Path) -> None:
    """With another seed nearly every draw is another token; the recorded text is scored all the same."""

    def other_draws(document: Document) -> None:
        other_instruction_set(document)
        oracle_of(document)["seed"] += 1

    report = verify(rewrite(core, tmp_path / "moved.core.safetensors", contract=other_draws))

    assert report.passed, report
    assert facts(report)["tokens_moved"] >= 8


def test_a_core_without_an_oracle_says_so_and_passes(core: Path, tmp_path: Path) -> None:
    def forget(document: Document) -> None:
        del document["provenance"]["oracle"]

    report = verify(rewrite(core, tmp_path / "old.core.safetensors", contract=forget))

    assert report.passed
    assert named(report, "oracle") == Check("oracle", Outcome.SKIPPED, "none recorded")


def test_an_oracle_of_tokens_alone_is_compared_where_it_was_made(core: Path, tmp_path: Path) -> None:
    def older(document: Document) -> None:
        oracle = oracle_of(document)
        document["provenance"]["oracle"] = {
            name: oracle[name] for name in ("prompt", "tokens", "seed", "temperature")
        }

    here = verify(rewrite(core, tmp_path / "here.core.safetensors", contract=older))
    assert facts(here)["comparison"] == "exact"
    elsewhere = verify(
        rewrite(
            core,
            tmp_path / "there.core.safetensors",
            contract=lambda document: (older(document), other_instruction_set(document)),
        )
    )
    assert elsewhere.passed
    assert named(elsewhere, "oracle").outcome is Outcome.SKIPPED


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        (
            lambda d: d["identity"].update(format_version=FORMAT_VERSION + 1),
            "contract",
            f"core format {FORMAT_VERSION + 1} is newer than this engine reads ({FORMAT_VERSION})",
        ),
        (lambda d: d["identity"].update(device="sm_90"), "identity", "device 'sm_90'"),
        (
            lambda d: d["identity"]["operator_library"].update(minimum="9.0", below="10"),
            "identity",
            "needs flare-components >=9.0,<10, found",
        ),
        (lambda d: d["frontend"].update(tokenizer_asset="elsewhere"), "references", "'elsewhere'"),
        (lambda d: d["page"].update(nbytes=d["page"]["nbytes"] + 256), "contract", "page geometry"),
    ],
    ids=["newer", "device", "library", "reference", "geometry"],
)
def test_what_does_not_fit_is_found_before_loading(
    tiny_core: Path, tmp_path: Path, change: Callable[[Document], object], check: str, message: str
) -> None:
    report = verify(rewrite(tiny_core, tmp_path / "other.core.safetensors", contract=change))

    assert named(report, check).outcome is Outcome.FAILED
    assert message in named(report, check).detail
    assert named(report, "load").outcome is Outcome.SKIPPED


def test_the_command_prints_a_line_per_check_and_its_status(tiny_core: Path, tmp_path: Path) -> None:
    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FLARE, "verify", *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    whole = command(tiny_core)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert [line.split()[:2] for line in whole.stdout.splitlines()] == [[name, "ok"] for name in NAMES]

    changed = rewrite(
        tiny_core, tmp_path / "changed.core.safetensors", tensors={largest_weight(tiny_core): flip_sign}
    )
    failed = command(changed, "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["passed"] is False
    assert failed.stderr.startswith(f"flare: {changed}: verification failed: oracle: ")
    assert len(failed.stderr.splitlines()) == 1

    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(b"x" * 100)
    assert command(foreign).returncode == 1
    assert command(tmp_path / "missing").stderr == f"flare: {tmp_path / 'missing'} does not exist\n"


def test_verification_imports_nothing_of_preparation(tiny_core: Path) -> None:
    script = (
        "import sys\nfrom flare.device import LoadOptions\nfrom flare.verify import Verification\n"
        f"assert Verification({str(tiny_core)!r}, options=LoadOptions(threads=1)).run().passed\n"
        "print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    barred = ("transformers", "flare.prepare", "flare.recipes", "flare_components.modules", "torch._dynamo")
    assert [name for name in result.stdout.split() if name.startswith(barred)] == []


def test_the_contract_requires_positions_and_bound_together(tiny_core: Path) -> None:
    with CoreReader(tiny_core) as reader:
        document = read_contract(reader).model_dump(mode="json")
    del document["provenance"]["oracle"]["positions"][-1]
    with pytest.raises(ValueError, match="15 positions for 16 tokens"):
        PreparedContract.model_validate(document)
