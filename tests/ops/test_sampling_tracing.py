"""The operators trace: right schemas and shapes, one node each, wrong operands refused by name."""

import pytest
import torch
from slot_state import OPS, i32, make_state
from torch import nn

from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.ops.sampling import READS

VOCAB = 40
CHECKS = ("test_schema", "test_faketensor")


def operands(slots=4):
    """Arguments of every operator for L = 2 lanes."""
    state = make_state(slots, VOCAB)
    lanes = i32(2, -1)
    uploaded = [state[name].new_ones(state[name].shape[1:] or (1,)) for name in PARAMETERS]
    records = (torch.zeros(2, 17, dtype=torch.int32), torch.zeros(2, 1))
    top = (torch.zeros(2, 1, 20, dtype=torch.int32), torch.zeros(2, 1, 20))
    sampled = (torch.zeros(2), torch.zeros(2, 20, dtype=torch.int32), torch.zeros(2, 20))
    commit = ("counter", "generated", "output_counts", "pending", "finished", "max_tokens", "stop_ids")
    report = ("epoch", "counter", "generated", "finished", "consumed")
    mask = torch.full((2, 2), -1, dtype=torch.int32)
    return {
        "sample": (torch.randn(2, VOCAB), lanes, *(state[n] for n in READS[2:]), mask),
        "commit_tokens": (i32(3, -1), lanes, *(state[n] for n in commit)),
        "decode_inputs": (lanes, state["pending"], state["consumed"], state["finished"]),
        "advance": (lanes, i32(1, 1), state["consumed"]),
        "start_request": (
            *(i32(1), i32(1), i32(5, 6, -1), i32(2), *uploaded),
            *(state[n] for n in (*PARAMETERS, *PROGRESS)),
        ),
        "write_completion": (i32(3, -1), lanes, *(state[n] for n in report), *sampled, *records, *top),
    }


@pytest.mark.parametrize("name", list(operands()))
def test_schema_and_shapes_hold(name):
    torch.library.opcheck(getattr(OPS, name).default, operands()[name], test_utils=CHECKS)


@pytest.mark.parametrize("name", list(operands()))
def test_exports_as_one_operator_with_its_writes(name):
    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            for index, tensor in enumerate(operands()[name]):
                self.register_buffer(f"operand_{index}", tensor.to("meta"))

        def forward(self):
            return getattr(OPS, name)(*self.buffers())

    exported = torch.export.export(Program(), (), strict=False)
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets.count(f"flare.{name}.default") == 1


@pytest.mark.parametrize(
    ("name", "position", "broken", "message"),
    [
        ("sample", 1, torch.zeros(2, dtype=torch.int64), r"slots is torch.int64"),
        ("sample", 0, torch.zeros(2, VOCAB, dtype=torch.int32), r"logits is torch.int32, expected floating"),
        ("sample", 18, torch.zeros(4, VOCAB + 1, dtype=torch.int32), r"output_counts is \[4, 41\]"),
        ("sample", 20, torch.zeros(2, 3, dtype=torch.int32), r"grammar_mask has 3 words for 40 tokens"),
        ("commit_tokens", 0, i32(1, 2, 3), r"slots is \[2\], expected \[L=3\]"),
        ("start_request", 0, i32(1, 2), r"epochs is \[1\]"),
        ("write_completion", 10, torch.zeros(2, 18, dtype=torch.int32), r"18 integers for 1 tokens"),
        ("write_completion", 12, torch.zeros(2, 1, 21, dtype=torch.int32), r"record_top_logprobs"),
    ],
)
def test_wrong_operands_are_refused_by_name(name, position, broken, message):
    arguments = [tensor.to("meta") for tensor in operands()[name]]
    arguments[position] = broken.to("meta")
    with pytest.raises(ValueError, match=message):
        getattr(OPS, name)(*arguments)
