"""Scripts of `benchmarks/` are no package: their folder is put on the import path."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "gpu"), str(BENCHMARKS / "memory")]
