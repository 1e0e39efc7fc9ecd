"""One machine for everything that an output is: reasoning, answer, tool calls.

It is fed tokens' text and marks as they come and returns events; streams, whole results and the validation of
calls read the same events, so that they cannot disagree. `marks` finds marks in text, `machine` knows what
they mean, `tagged_call` and `json_call` read the inside of calls.
"""

from flare.frontend.output_machine.events import (
    Answer,
    Arguments,
    Broken,
    CallEnd,
    CallStart,
    OutputEvent,
    Reasoning,
)
from flare.frontend.output_machine.joined import joined
from flare.frontend.output_machine.machine import OutputMachine, opens_reasoning

__all__ = [
    "Answer",
    "Arguments",
    "Broken",
    "CallEnd",
    "CallStart",
    "OutputEvent",
    "OutputMachine",
    "Reasoning",
    "joined",
    "opens_reasoning",
]
