"""One operator list bound to sim memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flare.device.sim_sequence
import flare.device.sim_speculation  # noqa: F401  registers operators, as sim_sequence does
from flare.contract import OperatorList
from flare.device.sim_memory import SimMemory
from flare.device.sim_ops import OPERATORS
from flare.errors import CoreError

Operand = Callable[[dict[int, Any]], Any]


class SimProgram:
    """Resolves operators and views at load and runs the list straight through.

    Raises CoreError for an operator that is unknown here or has another schema than at preparation.
    """

    def __init__(self, name: str, listing: OperatorList, memory: SimMemory) -> None:
        self._views = [memory.array(view) for view in listing.views]
        functions = []
        for recorded in listing.operators:
            known = OPERATORS.get(recorded.name)
            field = f"programs.{name}.operators"
            if known is None:
                raise CoreError(f"program {name}: unknown operator {recorded.name!r}", field=field)
            if known.schema_text != recorded.schema_text:
                raise CoreError(
                    f"program {name}: operator {recorded.name!r} has schema {known.schema_text!r}, "
                    f"the core was prepared with {recorded.schema_text!r}",
                    field=field,
                )
            functions.append(known.run)
        self._steps = [
            (
                functions[step.op],
                [self._operand(value, name) for value in step.args],
                {key: self._operand(value, name) for key, value in step.keywords.items()},
                step.out,
            )
            for step in listing.steps
        ]

    def run(self) -> None:
        """Run every step in order."""
        temporaries: dict[int, Any] = {}
        for function, args, keywords, out in self._steps:
            result = function(
                *(operand(temporaries) for operand in args),
                **{key: operand(temporaries) for key, operand in keywords.items()},
            )
            if len(out) == 1:
                temporaries[out[0]] = result
            elif out:
                temporaries.update(zip(out, result, strict=True))

    def _operand(self, value: Any, name: str) -> Operand:
        match value:
            case {"t": int(number)}:
                return lambda temporaries: temporaries[number]
            case {"v": int(number)}:
                view = self._views[number]
                return lambda temporaries: view
            case dict():
                raise CoreError(f"program {name}: literal {value} on a sim device", field="steps")
            case _:
                return lambda temporaries: value
