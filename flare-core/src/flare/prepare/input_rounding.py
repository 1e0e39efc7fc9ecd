"""How far roundings of inputs to a small number format may carry correct results apart."""

from __future__ import annotations

import math

from flare.contract import PreparedContract, ProgramKind
from flare.contract.oplist import Operator, OperatorList, Step
from flare.corefile import CoreWriter

# Root mean square of the relative rounding errors of normally distributed inputs: E2M1 with a scale for 16,
# E4M3 with a scale for a block.
_E2M1, _E4M3 = 0.095, 0.027
# The argument by which an operator is told to round its inputs, and the error.
_OPERATORS = {
    "flare::nvfp4_linear": ("input_scale", _E2M1),
    "flare::nvfp4_experts": ("gate_up_input", _E2M1),
    "flare::nvfp4_csf_experts": ("gate_up_input", _E2M1),
    "flare::mxfp8_linear": ("quantize_input", _E4M3),
    "flare::mxfp8_experts": ("quantize_input", _E4M3),
    "flare::fp8_block_linear": ("quantize_input", _E4M3),
    "flare::fp8_block_experts": ("quantize_input", _E4M3),
}


def input_noise(contract: PreparedContract, writer: CoreWriter) -> float:
    """The relative difference between two roundings of the same inputs, of the coarsest that a decode program
    does; 0 where inputs keep their type, as in programs that are no operator lists.

    An input that differs in its last bit may be rounded to the next code. Such steps are not small and make
    others, so that in the end inputs on another machine are rounded as if they had nothing to do with these.
    """
    payload = contract.of_kind(ProgramKind.DECODE)[0].payloads[0]
    if payload.format != "oplist":
        return 0.0
    listing = OperatorList.model_validate_json(bytes(writer.load(payload.tensor)))
    return math.sqrt(2) * max((_error(listing.operators[step.op], step) for step in listing.steps), default=0)


def _error(operator: Operator, step: Step) -> float:
    told, error = _OPERATORS.get(operator.name.partition(".")[0], (None, 0.0))
    if told is None:
        return 0.0
    text = operator.schema_text
    arguments = text[text.index("(") + 1 : text.rindex(") ->")].split(", ")
    place = [argument.split()[-1].partition("=")[0] for argument in arguments].index(told)
    value = step.args[place] if place < len(step.args) else step.keywords.get(told)
    return 0.0 if value is None or value is False else error
