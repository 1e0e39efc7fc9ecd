"""What decides the last bits of a result on this machine's processor."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

# Features whose presence selects other kernels, as Linux names them (x86-64, then AArch64).
_FEATURES = frozenset(
    re.split(
        r"\s+",
        "avx2 avx_vnni avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8 amx_fp16 "
        "asimd asimdhp bf16 i8mm sve sve2",
    )
)
_MODEL = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")


def instruction_set() -> str:
    """Architecture and the vector extension that torch uses, as recorded in a core's identity."""
    return f"{platform.machine()}/{torch.backends.cpu.get_cpu_capability()}"


def arithmetic_conditions() -> dict[str, str]:
    """Facts that select kernels and the order of sums. Where all agree, a program gives the same results."""
    processor, features = _cpuinfo()
    conditions = {
        "instruction set": instruction_set(),
        "processor": processor,
        "features": features,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }
    if limit := os.environ.get("ONEDNN_MAX_CPU_ISA"):
        conditions["onednn limit"] = limit
    return conditions


def _cpuinfo() -> tuple[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor(), ""
    first = text.split("\n\n", 1)[0]
    entries = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    flags = (entries.get("flags") or entries.get("Features") or "").split()
    return (
        " ".join(entries[key] for key in _MODEL if key in entries),
        " ".join(sorted(_FEATURES.intersection(flags))),
    )
