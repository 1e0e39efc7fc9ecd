"""Uploads and completions are checked against the contract when a core is bound, and packed exactly."""

import numpy as np
import pytest

from flare.cache import Slot
from flare.contract import (
    BufferView,
    CompletionBinding,
    CompletionField,
    DType,
    ProgramKind,
    ValueBinding,
    ValueSource,
)
from flare.engine.messages import Sampling, Submit, TokenLogprobs
from flare.engine.packing import _PACKERS, _REQUEST_PACKERS, _ROW_PACKERS, UploadPacker
from flare.engine.records import CompletionReader
from flare.engine.values import completion_type, value_type
from flare.engine.views import array_over
from flare.errors import CoreError
from flare.scheduler import Lane, Plan, Request
from flare.testing.hash_model import HashModel

MODEL = HashModel(
    context=16, page_tokens=4, stop_token_ids=3, speculative=((4, 5, 6, 20),), host_proposals=True
)
BASE = MODEL.build().contract
CONTRACT = BASE.model_copy(
    update={"capacities": BASE.capacities.model_copy(update={"logit_bias": 2, "logprobs": 2})}
)
DECODE = CONTRACT.of_kind(ProgramKind.DECODE)[-1]  # 4 lanes
PREFILL = CONTRACT.of_kind(ProgramKind.PREFILL)[1]  # 8 tokens
SPECULATIVE = CONTRACT.of_kind(ProgramKind.SPECULATIVE)[0]  # 4 lanes, 5 proposals for 6 inputs
START = CONTRACT.of_kind(ProgramKind.START)[0]
PACKED = {*_PACKERS, *_ROW_PACKERS, *_REQUEST_PACKERS}


def bind(program, source, **changes):
    """`program` with `source` as its only binding, of the right type unless changed."""
    kind = value_type(source, program, CONTRACT)
    view = {"buffer": "upload", "dtype": DType.I32, "shape": (1,)}
    if kind is not None:
        view |= {"dtype": kind.dtype, "shape": kind.shape}
    binding = ValueBinding(source=source, view=BufferView(**(view | changes)))
    return program.model_copy(update={"bindings": (binding,)})


def live(name: str, slot: int, prompt=(5, 6, 7, 8, 9), pages=(3, 1), **submit) -> Request:
    sampling = submit.pop("sampling", {})
    request = Request(
        Submit(
            request_id=name,
            prompt=prompt,
            sampling=Sampling(**({"temperature": 0.5, "seed": 2**64 - 1} | sampling)),
            max_tokens=submit.pop("max_tokens", 4),
            **submit,
        ),
        max_tokens=3,
    )
    request.slot, request.pages = Slot(index=slot, epoch=40 + slot, row=1 + slot), pages
    request.last_token = 90 + slot
    return request


def packed(program, source, lanes) -> list:
    program = bind(program, source)
    packer = UploadPacker(CONTRACT, program, frames=1)
    plan = Plan(frame=1, program=program, lanes=lanes)
    packer._stagings[0][0][:] = 0xEE  # nothing may be left over from an earlier step
    return array_over(packer.pack(plan), program.bindings[0].view).tolist()


TWO = [Lane(live("a", 2), 5, 1, True), Lane(live("b", 0), 9, 1, True)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ValueSource.LANE_SLOTS, [2, 0, -1, -1]),
        (ValueSource.EPOCHS, [42, 40, 0, 0]),
        (ValueSource.LIVE_ROWS, [3, 1, -1, -1]),
        (ValueSource.QUERY_START, [0, 1, 2, 2, 2]),
        (ValueSource.QUERY_LENGTHS, [1, 1, 0, 0]),
        (ValueSource.CONSUMED_COUNTS, [5, 9, 0, 0]),
        (ValueSource.SAMPLE_LANES, [1, 1, 0, 0]),
        (ValueSource.PENDING_TOKENS, [92, 90, -1, -1]),
        (ValueSource.PAGE_UPDATES, [[-1, -1]] * 4),
    ],
)
def test_decode_values(source, expected):
    assert packed(DECODE, source, TWO) == expected


def test_speculative_values():
    lanes = [
        Lane(live("a", 2), 5, 3, True, page_updates=[(2, 9), (3, 6)], proposals=(70, 71)),
        Lane(live("b", 0), 9, 1, True, page_updates=[(1, 8)]),
    ]
    assert packed(SPECULATIVE, ValueSource.QUERY_LENGTHS, lanes) == [3, 1, 0, 0]
    proposals = packed(SPECULATIVE, ValueSource.HOST_PROPOSALS, lanes)
    assert proposals == [[70, 71, -1, -1, -1], [-1] * 5, [-1] * 5, [-1] * 5]
    none = [-1, -1]
    pages = packed(SPECULATIVE, ValueSource.PAGE_UPDATES, lanes)
    assert pages == [[[2, 9], [3, 6]], [[1, 8], none], [none] * 2, [none] * 2]  # 6 inputs reach two pages


def test_prefill_values():
    lanes = [Lane(live("a", 1), 2, 3, False)]
    assert packed(PREFILL, ValueSource.TOKEN_IDS, lanes) == [7, 8, 9, -1, -1, -1, -1, -1]
    assert packed(PREFILL, ValueSource.QUERY_START, lanes) == [0, 3]
    assert packed(PREFILL, ValueSource.SAMPLE_LANES, lanes) == [0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ValueSource.PAGE_TABLE_ROW, [3, 1, 0, 0]),
        (ValueSource.PROMPT_TOKENS, [5, 6, 7, 8, 9] + [-1] * 11),
        (ValueSource.PROMPT_LENGTH, [5]),
        (ValueSource.SOURCE_ROW, [0]),
        (ValueSource.TEMPERATURE, [0.5]),
        (ValueSource.TOP_K, [20]),
        (ValueSource.TOP_P, [0.75]),
        (ValueSource.MIN_P, [0.25]),
        (ValueSource.REPETITION_PENALTY, [1.5]),
        (ValueSource.PRESENCE_PENALTY, [-0.5]),
        (ValueSource.FREQUENCY_PENALTY, [2.0]),
        (ValueSource.SEED, [-1]),  # the bits of 2^64 - 1
        (ValueSource.MIN_TOKENS, [2]),
        (ValueSource.MAX_TOKENS, [3]),  # bounded by the context, not what the client asked
        (ValueSource.STOP_TOKEN_IDS, [0, 96, -1]),
        (ValueSource.LOGIT_BIAS_IDS, [8, -1]),
        (ValueSource.LOGIT_BIAS_VALUES, [-4.0, 0.0]),
        (ValueSource.LOGPROBS_WANTED, [0]),
    ],
)
def test_start_values(source, expected):
    sampling = {
        "top_k": 20,
        "top_p": 0.75,
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": -0.5,
        "frequency_penalty": 2.0,
        "logit_bias": ((8, -4.0),),
    }
    request = live("a", 1, sampling=sampling, min_tokens=2, stop_token_ids=(0, 96), logprobs=0)
    assert packed(START, source, [Lane(request, 0, 0, False)]) == expected


def test_logprobs_wanted_is_minus_one_without_logprobs():
    assert packed(START, ValueSource.LOGPROBS_WANTED, [Lane(live("a", 1), 0, 0, False)]) == [-1]


def test_every_source_with_a_type_has_a_packer():
    assert {s for s in ValueSource if value_type(s, SPECULATIVE, CONTRACT) is not None} == (
        PACKED - {ValueSource.PATCHES}
    )


@pytest.mark.parametrize("source", [s for s in ValueSource if s not in PACKED])
def test_a_source_this_engine_does_not_produce_is_named(source):
    with pytest.raises(CoreError, match=source.value) as caught:
        UploadPacker(CONTRACT, bind(DECODE, source), frames=1)
    assert DECODE.name in caught.value.field


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"dtype": DType.I64}, r"I64\[4\], expected I32\[4\]"),
        ({"shape": (3,)}, r"I32\[3\], expected I32\[4\]"),
        ({"strides": (2,)}, "not dense"),
        ({"offset": 2}, "unaligned byte 2"),
        ({"buffer": "pages"}, "region pages"),
        ({"buffer": "nowhere"}, "unknown buffer"),
    ],
)
def test_a_view_of_another_type_is_refused(changes, complaint):
    with pytest.raises(CoreError, match=complaint):
        UploadPacker(CONTRACT, bind(DECODE, ValueSource.LANE_SLOTS, **changes), frames=1)


def test_staging_buffers_take_turns():
    packer = UploadPacker(CONTRACT, DECODE, frames=2)
    plan = Plan(frame=1, program=DECODE, lanes=TWO)
    first, second, third = packer.pack(plan), packer.pack(plan), packer.pack(plan)
    assert first is third
    assert not np.shares_memory(first, second)


def reporting(*fields: CompletionField):
    bindings, offset = [], 0
    for field in fields:
        kind = completion_type(field, DECODE, CONTRACT)
        view = BufferView(buffer="completion", dtype=kind.dtype, shape=kind.shape, offset=offset)
        bindings.append(CompletionBinding(field=field, view=view))
        offset = view.end
    return DECODE.model_copy(update={"completion": tuple(bindings)})


def test_log_probabilities_reach_the_lanes_that_asked():
    fields = CompletionField
    program = reporting(fields.RECORDS, fields.LOGPROBS, fields.TOP_IDS, fields.TOP_LOGPROBS)
    completion = np.zeros(program.completion_bytes, dtype=np.uint8)
    views = {binding.field: array_over(completion, binding.view) for binding in program.completion}
    views[fields.RECORDS][:2, 3] = 1  # one token each
    views[fields.LOGPROBS][:2, 0] = [-0.5, -1.5]
    views[fields.TOP_IDS][1, 0] = [7, 8]
    views[fields.TOP_LOGPROBS][1, 0] = [-0.25, -2.0]
    lanes = [Lane(live("a", 2, logprobs=0), 5, 1, True), Lane(live("b", 0, logprobs=1), 5, 1, True)]
    records = CompletionReader(CONTRACT, program).read(Plan(1, program, lanes), completion)
    assert records[0].logprobs == (TokenLogprobs(logprob=-0.5, top=()),)
    assert records[1].logprobs == (TokenLogprobs(logprob=-1.5, top=((7, -0.25),)),)
    lanes[1] = Lane(live("b", 0), 5, 1, True)
    records = CompletionReader(CONTRACT, program).read(Plan(1, program, lanes), completion)
    assert records[1].logprobs == ()


def test_a_program_that_draws_reports_records():
    with pytest.raises(CoreError, match="no records"):
        CompletionReader(CONTRACT, DECODE.model_copy(update={"completion": ()}))
    with pytest.raises(CoreError, match="no records"):
        CompletionReader(CONTRACT, reporting(CompletionField.LOGPROBS))
    CompletionReader(CONTRACT, START)  # draws nothing


def test_completion_types_are_checked():
    with pytest.raises(CoreError, match="records is bound"):
        CompletionReader(CONTRACT, DECODE.model_copy(update={"lanes": 2}))
    view = BufferView(buffer="completion", dtype=DType.F32, shape=(2, 4, 1))
    binding = CompletionBinding(field=CompletionField.CONFIDENCE, view=view)
    with pytest.raises(CoreError, match="confidence cannot be read"):
        CompletionReader(CONTRACT, DECODE.model_copy(update={"completion": (binding,)}))
