"""Check that a recipe's retained modules really run: upstream work stays connected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from flare.recipes import BuiltModel


def check_retained(built: BuiltModel, run: Callable[[], object]) -> Counter[str]:
    """Call `run` (tracing, or any forward) and require that every retained module took part.

    Every instance of every class in `built.retained` must be called, with the class's own `forward`, and a
    class must have at least one instance. Returns the number of calls by class name. Raises AssertionError
    naming each module that was bypassed.
    """
    calls: Counter[str] = Counter()
    waiting: dict[str, nn.Module] = {}
    problems: list[str] = []
    handles = []
    for kind in built.retained:
        instances = {name: module for name, module in built.module.named_modules() if type(module) is kind}
        if not instances:
            problems.append(f"{kind.__qualname__} has no instance in the model")
        for name, module in instances.items():
            if "forward" in vars(module):
                problems.append(f"{name} runs another forward than {kind.__qualname__}'s")
            waiting[name] = module
            handles.append(module.register_forward_pre_hook(_recorder(calls, waiting, name, kind)))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    problems += [f"{name} ({type(module).__qualname__}) was never called" for name, module in waiting.items()]
    if problems:
        raise AssertionError("retained modules are bypassed: " + "; ".join(problems))
    return calls


def _recorder(
    calls: Counter[str], waiting: dict[str, nn.Module], name: str, kind: type[nn.Module]
) -> Callable[..., None]:
    def record(*_: Any) -> None:
        calls[kind.__qualname__] += 1
        waiting.pop(name, None)

    return record
