"""Upload packing: one packer per value source, bound to the views of a program once and run every step.

Padding lanes and token rows hold -1 for indices and 0 for amounts, as `flare.contract.values` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flare.cache import NULL_ROW
from flare.contract import BufferView, DType, PreparedContract, Program, Region, ValueBinding, ValueSource
from flare.engine.constraints import Constraints
from flare.engine.grammar_masks import GrammarMasks
from flare.engine.image_values import (
    FeatureIndices,
    RopePositions,
    check_patches,
    feature_offset,
    image_grid,
    patches,
)
from flare.engine.messages import Submit
from flare.engine.table_rows import TableRows
from flare.engine.values import value_type
from flare.engine.views import array_over, check_region, check_view
from flare.errors import CoreError
from flare.scheduler import Lane, Plan, Request, Transfer

View = NDArray[Any]
Packer = Callable[[View, Plan], None]


def _per_lane(value: Callable[[Lane], int], padding: int) -> Packer:
    """A packer of one integer per lane."""

    def pack(view: View, plan: Plan) -> None:
        lanes = plan.lanes
        for index, lane in enumerate(lanes):
            view[index] = value(lane)
        if len(lanes) < len(view):
            view[len(lanes) :] = padding

    return pack


def _token_ids(view: View, plan: Plan) -> None:
    cursor = 0
    for lane in plan.lanes:
        end = cursor + lane.length
        view[cursor:end] = lane.request.tokens[lane.consumed : lane.consumed + lane.length]
        cursor = end
    view[cursor:] = -1


def _query_start(view: View, plan: Plan) -> None:
    ends = list(accumulate(lane.length for lane in plan.lanes))
    view[0] = 0
    view[1 : len(ends) + 1] = ends
    view[len(ends) + 1 :] = ends[-1]


def _page_updates(view: View, plan: Plan) -> None:
    view[:] = -1
    pages = view.reshape(len(view), -1, 2)  # [L, pages per step, 2]; one page has no dimension of its own
    for index, lane in enumerate(plan.lanes):
        for place, update in enumerate(lane.page_updates):
            pages[index, place] = update


def _host_proposals(view: View, plan: Plan) -> None:
    view[:] = -1
    for index, lane in enumerate(plan.lanes):
        view[index, : len(lane.proposals)] = lane.proposals


def _transfer(value: Callable[[Transfer], int]) -> Packer:
    """A packer of one index of a state transfer. A starting request copies the null row, which is empty."""
    start = Transfer(source_row=NULL_ROW, destination_row=-1)

    def pack(view: View, plan: Plan) -> None:
        view[0] = value(plan.lanes[0].transfer or start)

    return pack


def _padded(view: View, values: Sequence[float], padding: int) -> None:
    view[: len(values)] = values
    view[len(values) :] = padding


def _page_table_row(view: View, plan: Plan) -> None:
    _padded(view, plan.lanes[0].request.pages, 0)


def _prompt_tokens(view: View, plan: Plan) -> None:
    request = plan.lanes[0].request
    _padded(view, request.tokens[: request.input_length], -1)


def _request_value(value: Callable[[Submit], float]) -> Packer:
    """A packer of one scalar of the starting request."""

    def pack(view: View, plan: Plan) -> None:
        view[0] = value(_submit(plan))

    return pack


def _admission_value(value: Callable[[Request], int]) -> Packer:
    """A packer of one integer that depends on what the starting request did before this admission."""

    def pack(view: View, plan: Plan) -> None:
        view[0] = value(plan.lanes[0].request)

    return pack


def _seed(request: Request) -> int:
    return _signed(continued_seed(cast(Submit, request.spec).sampling.seed, request.before))


def continued_seed(seed: int, generated: int) -> int:
    """The Philox key of a request that starts on the device after `generated` tokens of output: its own at
    first, then one that follows from both, so that no draw repeats."""
    if not generated:
        return seed
    content = seed.to_bytes(8, "little") + generated.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _submit(plan: Plan) -> Submit:
    return cast(Submit, plan.lanes[0].request.spec)


def _signed(value: int) -> int:
    """The i64 with the bits of an unsigned 64-bit integer."""
    return value - (1 << 64) if value >= 1 << 63 else value


V = ValueSource
_PACKERS: dict[ValueSource, Packer] = {
    V.TOKEN_IDS: _token_ids,
    V.LANE_SLOTS: _per_lane(lambda lane: lane.request.slot.index, -1),
    V.EPOCHS: _per_lane(lambda lane: lane.request.slot.epoch, 0),
    V.LIVE_ROWS: _per_lane(lambda lane: lane.request.slot.row, -1),
    V.QUERY_START: _query_start,
    V.QUERY_LENGTHS: _per_lane(lambda lane: lane.length, 0),
    V.CONSUMED_COUNTS: _per_lane(lambda lane: lane.consumed, 0),
    V.SAMPLE_LANES: _per_lane(lambda lane: int(lane.sample), 0),
    V.PENDING_TOKENS: _per_lane(lambda lane: lane.request.last_token, -1),
    V.PAGE_UPDATES: _page_updates,
    V.HOST_PROPOSALS: _host_proposals,
    V.SOURCE_ROW: _transfer(lambda transfer: transfer.source_row),
    V.DESTINATION_ROW: _transfer(lambda transfer: transfer.destination_row),
    V.SOURCE_PAGE: _transfer(lambda transfer: transfer.source_page),
    V.DESTINATION_PAGE: _transfer(lambda transfer: transfer.destination_page),
    V.PAGE_TABLE_ROW: _page_table_row,
    V.PROMPT_TOKENS: _prompt_tokens,
    V.PROMPT_LENGTH: _admission_value(lambda request: request.input_length),
    V.OUTPUT_LENGTH: _admission_value(lambda request: request.before),
    V.TEMPERATURE: _request_value(lambda submit: submit.sampling.temperature),
    V.TOP_K: _request_value(lambda submit: submit.sampling.top_k),
    V.TOP_P: _request_value(lambda submit: submit.sampling.top_p),
    V.MIN_P: _request_value(lambda submit: submit.sampling.min_p),
    V.REPETITION_PENALTY: _request_value(lambda submit: submit.sampling.repetition_penalty),
    V.PRESENCE_PENALTY: _request_value(lambda submit: submit.sampling.presence_penalty),
    V.FREQUENCY_PENALTY: _request_value(lambda submit: submit.sampling.frequency_penalty),
    V.SEED: _admission_value(_seed),
    V.MIN_TOKENS: _admission_value(lambda request: max(request.spec.min_tokens - request.before, 0)),
    V.MAX_TOKENS: _admission_value(lambda request: request.max_tokens - request.before),
    V.STOP_TOKEN_IDS: lambda view, plan: _padded(view, _submit(plan).stop_token_ids, -1),
    V.LOGIT_BIAS_IDS: lambda view, plan: _padded(view, [i for i, _ in _submit(plan).sampling.logit_bias], -1),
    V.LOGIT_BIAS_VALUES: lambda view, plan: _padded(
        view, [bias for _, bias in _submit(plan).sampling.logit_bias], 0
    ),
    V.PATCHES: patches,
    V.IMAGE_GRID: image_grid,
    V.FEATURE_OFFSET: feature_offset,
    V.LOGPROBS_WANTED: _request_value(lambda submit: -1 if submit.logprobs is None else submit.logprobs),
}

# Made for a program, because they place values by its token rows.
_ROW_PACKERS: dict[ValueSource, Callable[[Program], Packer]] = {
    V.FEATURE_INDICES: FeatureIndices,
    V.ROPE_POSITIONS: RopePositions,
}

# Made with what the engine knows of its requests besides their tokens.
_REQUEST_PACKERS: dict[ValueSource, Callable[[Constraints | None], Packer]] = {V.GRAMMAR_MASK: GrammarMasks}


class UploadPacker:
    """Packs plans of one program into staging memory, `frames` buffers in turn.

    A buffer is reused after `frames` further plans of the program; the caller keeps at most `frames` plans
    in flight, so the device has read it by then. Raises CoreError, naming program and source, when the
    program binds a source this engine does not produce, or binds it to a view of another type. `tables` are
    the contents of the core's tables, by name; `constraints` those of the requests.
    """

    def __init__(
        self,
        contract: PreparedContract,
        program: Program,
        frames: int,
        tables: Mapping[str, NDArray[np.uint8]] = MappingProxyType({}),
        constraints: Constraints | None = None,
    ) -> None:
        self._turn = 0
        self._stagings: list[tuple[NDArray[np.uint8], list[Callable[[Plan], None]]]] = []
        for binding in program.bindings:
            _check(binding, program, contract)
        resources = {table.name: table for table in contract.tables}

        def packer(binding: ValueBinding) -> Packer:
            if binding.table is not None:
                return TableRows(resources[binding.table], tables[binding.table], program)
            if binding.source in _REQUEST_PACKERS:
                return _REQUEST_PACKERS[binding.source](constraints)
            if binding.source in _ROW_PACKERS:
                return _ROW_PACKERS[binding.source](program)
            return _PACKERS[binding.source]

        packers = [(packer(binding), _staged(binding)) for binding in program.bindings]
        for _ in range(frames):
            storage = np.zeros(program.upload_bytes, dtype=np.uint8)
            bound: list[Callable[[Plan], None]] = [
                partial(pack, array_over(storage, view)) for pack, view in packers
            ]
            self._stagings.append((storage, bound))

    def pack(self, plan: Plan) -> NDArray[np.uint8]:
        """The upload bytes of `plan`, u8[program.upload_bytes]."""
        storage, packers = self._stagings[self._turn]
        self._turn = (self._turn + 1) % len(self._stagings)
        for packer in packers:
            packer(plan)
        return storage


def _staged(binding: ValueBinding) -> BufferView:
    """The view that a packer fills: bytes for patches, which may have a type that NumPy lacks."""
    view = binding.view
    if binding.source is not ValueSource.PATCHES:
        return view
    return BufferView(buffer=view.buffer, dtype=DType.U8, shape=(view.nbytes,), offset=view.offset)


def _check(binding: ValueBinding, program: Program, contract: PreparedContract) -> None:
    where = f"program {program.name}: value {binding.source.value}"
    check_region(contract, binding.view, Region.UPLOAD, where)
    if binding.source is ValueSource.PATCHES:
        check_patches(binding, program, where)
        return
    expected = value_type(binding.source, program, contract, binding.table)
    if expected is None:
        raise CoreError(f"{where} cannot be produced by this engine", field=where)
    check_view(binding.view, expected, where)
