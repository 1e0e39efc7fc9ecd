"""What is captured for a GPU, and how it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """What of a program is captured: its modules as they are written, the graph that is traced of them with
    operators fused, or that graph with Inductor's kernels for what lies between operators."""

    MODULES = "modules"
    TRACED = "traced"
    COMPILED = "compiled"


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """`form` of the programs that are captured. `eager`: every program also runs from Python, as its modules
    are written, and what it draws is compared with what its captured graph draws. `relocatable`: programs are
    captured a second time, at other addresses, and a core is refused that keeps addresses out of sight."""

    form: Form = Form.COMPILED
    eager: bool = False
    relocatable: bool = False


def chosen_form(*, no_compile: bool, no_trace: bool) -> Form:
    """What is captured when steps are left out; without a traced graph there is nothing to compile."""
    if no_trace:
        return Form.MODULES
    return Form.TRACED if no_compile else Form.COMPILED
