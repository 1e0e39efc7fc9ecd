"""Ways to prepare for a GPU that leave something out, to find what a fault depends on. No way to serve."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """`compile`: Inductor fuses what lies between operators. `eager`: every program also runs from Python,
    as its modules are written, and what it draws is compared with what its captured graph draws."""

    compile: bool = True
    eager: bool = False
