"""The contract as a whole: what it keeps, what it ignores, and what it refuses by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from flare.contract import FORMAT_VERSION, PreparedContract
from flare.testing.hash_model import HashModel

Document = dict[str, Any]
CONTRACT = HashModel().build().contract


@pytest.fixture
def document() -> Document:
    return CONTRACT.model_dump(mode="json")


def test_json_round_trip_is_exact() -> None:
    assert PreparedContract.model_validate_json(CONTRACT.model_dump_json()) == CONTRACT


def test_the_schema_describes_every_field() -> None:
    schema = PreparedContract.model_json_schema()
    assert set(schema["properties"]) == set(PreparedContract.model_fields)
    assert set(schema["$defs"]["Capacities"]["properties"]) >= {"context", "concurrency", "speculative"}


def test_unknown_additive_fields_are_ignored_at_every_depth(document: Document) -> None:
    document["a_later_field"] = {"x": 1}
    for part in (document["identity"], document["capacities"], document["programs"][0]):
        part["a_later_field"] = True
    document["programs"][0]["payloads"][0]["a_later_field"] = "y"
    assert PreparedContract.model_validate(document) == CONTRACT


def test_fields_with_defaults_may_be_absent(document: Document) -> None:
    for name in ("verification_width", "speculative", "image_patches", "image_features"):
        del document["capacities"][name]
    for buffer in document["buffers"]:
        del buffer["rank"], buffer["strides"]
    assert PreparedContract.model_validate(document) == CONTRACT


def program(document: Document, name: str) -> Document:
    found: Document = next(entry for entry in document["programs"] if entry["name"] == name)
    return found


def buffer(document: Document, name: str) -> Document:
    found: Document = next(entry for entry in document["buffers"] if entry["name"] == name)
    return found


def newer(d: Document) -> None:
    d["identity"]["format_version"] = FORMAT_VERSION + 1


def foreign_device(d: Document) -> None:
    d["identity"]["device"] = "abacus"


def unknown_scheme(d: Document) -> None:
    d["schemes"][0]["kind"] = "telepathic"


def unknown_kind(d: Document) -> None:
    program(d, "resume")["kind"] = "meditate"


def unknown_source(d: Document) -> None:
    program(d, "start")["bindings"][0]["source"] = "moon_phase"


def unknown_region(d: Document) -> None:
    buffer(d, "pages")["region"] = "cupboard"


def unknown_payload(d: Document) -> None:
    program(d, "start")["payloads"][0]["format"] = "pickle"


def moved_field(d: Document) -> None:
    d["page"]["fields"][0]["offset"] += 64


def shrunk_row(d: Document) -> None:
    d["row"]["nbytes"] -= 256


def fewer_pages_than_a_context(d: Document) -> None:
    d["capacities"]["pages"] = 3


def page_region_of_another_size(d: Document) -> None:
    buffer(d, "pages")["shape"][0] += 1


def row_region_without_snapshots(d: Document) -> None:
    d["capacities"]["snapshot_rows"] += 1


def twice_the_buffer(d: Document) -> None:
    d["buffers"].append(dict(buffer(d, "pending")))


def twice_the_program(d: Document) -> None:
    d["programs"].append(dict(program(d, "resume")))


def overlap(d: Document) -> None:
    first, second = (b for b in d["buffers"] if b["name"] in ("pending", "consumed"))
    second["offset"] = first["offset"] + 4


def view_outside(d: Document) -> None:
    program(d, "start")["bindings"][-1]["view"]["offset"] += 1 << 20


def view_of_nothing(d: Document) -> None:
    program(d, "start")["bindings"][0]["view"]["buffer"] = "elsewhere"


def upload_into_pages(d: Document) -> None:
    program(d, "start")["bindings"][0]["view"]["buffer"] = "pages"


def completion_from_upload(d: Document) -> None:
    program(d, "resume")["completion"][0]["view"].update(buffer="upload", offset=0, shape=[1])


def sparse_upload(d: Document) -> None:
    view = program(d, "start")["bindings"][0]["view"]
    view["strides"] = [2] * len(view["shape"])


def backward_view(d: Document) -> None:
    view = program(d, "start")["bindings"][0]["view"]
    view["strides"] = [-1] * len(view["shape"])


def negative_extent(d: Document) -> None:
    program(d, "start")["bindings"][0]["view"]["shape"] = [-4]


def source_bound_twice(d: Document) -> None:
    bindings = program(d, "start")["bindings"]
    bindings.append(dict(bindings[0]))


def unknown_buffer_read(d: Document) -> None:
    program(d, "start")["reads"] = ["elsewhere"]


def unknown_table(d: Document) -> None:
    program(d, "start")["tables"] = [{"table": "ngrams", "delivery": "host_rows"}]


def payload_for_another_rank(d: Document) -> None:
    program(d, "start")["payloads"][0]["rank"] = 1


def payload_missing_a_rank(d: Document) -> None:
    d["identity"]["world_size"] = 2


def no_start(d: Document) -> None:
    d["programs"] = [p for p in d["programs"] if p["kind"] != "start"]


def decode_size_missing(d: Document) -> None:
    d["programs"] = [p for p in d["programs"] if p["name"] != "decode_2"]


def prefill_size_undeclared(d: Document) -> None:
    d["capacities"]["prefill_tokens"] = d["capacities"]["prefill_tokens"][:-1]


def tokens_are_not_lanes(d: Document) -> None:
    program(d, "decode_2")["tokens"] = 3


def speculative_without_shape(d: Document) -> None:
    program(d, "resume")["kind"] = "speculative"


def bytes_without_tensor(d: Document) -> None:
    buffer(d, "pending")["initial"] = "bytes"


def tensor_without_bytes(d: Document) -> None:
    buffer(d, "pending")["tensor"] = "w"


def no_capacities(d: Document) -> None:
    del d["capacities"]["stop_token_ids"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (newer, f"format {FORMAT_VERSION + 1} is newer than this engine reads"),
        (foreign_device, "identity.device"),
        (unknown_scheme, "telepathic"),
        (unknown_kind, "meditate"),
        (unknown_source, "moon_phase"),
        (unknown_region, "cupboard"),
        (unknown_payload, "format"),
        (moved_field, "page geometry does not follow"),
        (shrunk_row, "row geometry does not follow"),
        (fewer_pages_than_a_context, "3 pages .one is reserved. cannot hold a context"),
        (page_region_of_another_size, "region pages"),
        (row_region_without_snapshots, "region rows"),
        (twice_the_buffer, "buffer names are not unique"),
        (twice_the_program, "program names are not unique"),
        (overlap, "buffers pending and consumed overlap"),
        (view_outside, "program start: view ends at"),
        (view_of_nothing, "view of unknown buffer 'elsewhere'"),
        (upload_into_pages, "'pages' is not a dense window of the upload region"),
        (completion_from_upload, "'upload' is not a dense window of the completion region"),
        (sparse_upload, "not a dense window"),
        (backward_view, "negative stride"),
        (negative_extent, "negative extent"),
        (source_bound_twice, "a value source is bound twice"),
        (unknown_buffer_read, "unknown buffer 'elsewhere'"),
        (unknown_table, "unknown tables .'ngrams'."),
        (payload_for_another_rank, "payloads for ranks .1."),
        (payload_missing_a_rank, "payloads for ranks .0."),
        (no_start, "no program of kind start"),
        (decode_size_missing, "decode programs of sizes"),
        (prefill_size_undeclared, "prefill programs of sizes"),
        (tokens_are_not_lanes, "one token per lane"),
        (speculative_without_shape, "kind and speculative shape disagree"),
        (bytes_without_tensor, "'bytes' and a tensor name go together"),
        (tensor_without_bytes, "'bytes' and a tensor name go together"),
        (no_capacities, "capacities.stop_token_ids"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_impossible_contract_is_refused(
    document: Document, change: Callable[[Document], None], message: str
) -> None:
    change(document)
    with pytest.raises(ValidationError, match=message):
        PreparedContract.model_validate(document)


def test_a_contract_never_changes() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        CONTRACT.capacities.pages = 1  # type: ignore[misc]
