"""Cores that the CPU device must not run: each refusal names what is wrong, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered import flip_byte, load, load_altered

from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.errors import CoreError

Document = dict[str, Any]


def test_an_unaltered_core_loads(tiny_core: Path) -> None:
    load_altered(tiny_core, contract=lambda d: None, listing=lambda d: None).close()


def other_schema(d: Document) -> None:
    d["operators"][0]["schema_text"] = d["operators"][0]["schema_text"].replace("(", "(int first, ", 1)


def broken_schema(d: Document) -> None:
    d["operators"][0]["schema_text"] = "flare::("


def unknown_operator(d: Document) -> None:
    d["operators"][0]["name"] = "flare::clairvoyance"


def unknown_overload(d: Document) -> None:
    d["operators"][0]["name"] = "aten::relu.Sideways"


def operator_that_opens_files(d: Document) -> None:
    import torch

    d["operators"][0]["name"] = "aten::from_file"
    d["operators"][0]["schema_text"] = str(torch.ops.aten.from_file.default._schema)


def attribute_of_a_packet(d: Document) -> None:
    d["operators"][0]["name"] = "aten::relu.__class__"


def attribute_of_the_namespace(d: Document) -> None:
    d["operators"][0]["name"] = "aten::name"


def other_device(d: Document) -> None:
    d["operators"][0]["name"] = "sim::gather"


def not_admitted(d: Document) -> None:
    d["operators"][0]["name"] = "prims::view_of"


def view_behind_the_end(d: Document) -> None:
    d["views"][0]["offset"] = 1 << 40


def view_of_nothing(d: Document) -> None:
    d["views"][0]["buffer"] = "weights/imagined"


def view_backward(d: Document) -> None:
    d["views"][0]["strides"] = [-1] * len(d["views"][0]["shape"])


def view_between_elements(d: Document) -> None:
    d["views"][0].update(offset=1, shape=[1])


def unread_temporary(d: Document) -> None:
    d["steps"][0]["args"] = [{"t": 99}]


def unknown_literal(d: Document) -> None:
    d["steps"][0]["args"] = [{"named": "memory_format", "value": "__dict__"}]


def write_into_a_weight(d: Document) -> None:
    def writing(step: Document) -> int:
        """The operand that the step writes, or -1."""
        places = d["operators"][step["op"]]["schema_text"].split("(", 1)[1].split(", ")
        return next((place for place, text in enumerate(places) if "!" in text), -1)

    step = next(step for step in d["steps"] if writing(step) >= 0)
    weight = next(i for i, view in enumerate(d["views"]) if view["buffer"].startswith("weights/"))
    step["args"][writing(step)] = {"v": weight}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_schema, "has the schema .* the core was prepared with"),
        (broken_schema, "has the schema .* the core was prepared with"),
        (unknown_operator, "flare::clairvoyance is not available here"),
        (unknown_overload, "aten::relu.Sideways is not available here"),
        (operator_that_opens_files, "opens files"),
        (attribute_of_a_packet, "aten::relu.__class__ is not an operator"),
        (attribute_of_the_namespace, "aten::name is not available here"),
        (other_device, "sim::gather does not run on the CPU"),
        (not_admitted, "not in an admitted namespace"),
        (view_behind_the_end, "lies outside"),
        (view_of_nothing, "'weights/imagined' .* lies outside"),
        (view_backward, "negative stride"),
        (view_between_elements, "misaligned"),
        (unread_temporary, "temporary 99 is read before"),
        (unknown_literal, "unknown operand"),
        (write_into_a_weight, "program resume: flare::.* writes a constant"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_program(tiny_core: Path, change: Callable[[Document], None], message: str) -> None:
    with pytest.raises(CoreError, match=message):
        load_altered(tiny_core, listing=change)


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_truncated_program(tiny_core: Path, cut: int) -> None:
    payload = bytes(CoreReader(tiny_core).bytes("program/decode.2"))
    with pytest.raises(CoreError, match=r"program decode\.2") as caught:
        load_altered(tiny_core, program="decode.2", payload=payload[:cut])
    assert caught.value.field == "programs.decode.2"


def library(**changes: str) -> Callable[[Document], None]:
    return lambda d: d["identity"]["operator_library"].update(changes)


def two_ranks(d: Document) -> None:
    d["identity"]["world_size"] = 2
    for program in d["programs"]:
        program["payloads"].append({**program["payloads"][0], "rank": 1})


def graph_payload(d: Document) -> None:
    d["programs"][0]["payloads"][0]["format"] = "cuda_graph"


def other_size(d: Document) -> None:
    weight = next(b for b in d["buffers"] if b["name"] == "weights/model.norm.weight")
    weight["shape"] = [63]


@pytest.mark.parametrize(
    ("change", "message", "field"),
    [
        (
            library(distribution="flare-imagined"),
            "pip install 'flare-imagined>=.*,<",
            "identity.operator_library",
        ),
        (library(minimum="99.0"), "needs flare-components >=99.0", "identity.operator_library"),
        (library(minimum="0", below="0.0.0"), "<0.0.0, found", "identity.operator_library"),
        (two_ranks, "runs one rank", "identity.world_size"),
        (graph_payload, "cuda_graph is not for the CPU", "programs.start.payloads"),
        (other_size, "does not fill buffer", "weights/model.norm.weight"),
    ],
)
def test_contract(tiny_core: Path, change: Callable[[Document], None], message: str, field: str) -> None:
    with pytest.raises(CoreError, match=message) as caught:
        load_altered(tiny_core, contract=change)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "tensor", ["model.embed_tokens.weight", "model.rotary_emb.inv_freq", "program/prefill.16"]
)
def test_damaged_contents(tiny_core: Path, tmp_path: Path, tensor: str) -> None:
    with pytest.raises(CoreError, match=f"tensor {tensor} is damaged") as caught:
        load(flip_byte(tiny_core, tensor, tmp_path / "damaged.core.safetensors"))
    assert caught.value.field == tensor


def test_a_core_for_another_device(tiny_core: Path) -> None:
    reader = CoreReader(tiny_core)
    contract = read_contract(reader)
    identity = contract.identity.model_copy(update={"device": "tpu"})
    with pytest.raises(CoreError, match="no device of kind 'tpu'"):
        load_device(contract.model_copy(update={"identity": identity}), reader)
