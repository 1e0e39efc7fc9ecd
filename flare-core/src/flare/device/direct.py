"""Direct execution: programs run one at a time with values given by name, without scheduler or engine.

Preparation measures costs and records the oracle with it, verification replays the oracle, tests compare
numbers. No request of a client ever runs this way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from flare.contract import (
    METADATA_FIELDS,
    BufferView,
    CompletionField,
    DType,
    PreparedContract,
    Program,
    ProgramKind,
    Record,
    ValueSource,
)
from flare.device.base import Bytes, Device
from flare.device.direct_images import TEXT, EncodableImage, SeenImages
from flare.device.lookups import lookup_of
from flare.device.table_reader import TableReader

_NUMPY = {DType.I32: np.int32, DType.I64: np.int64, DType.F32: np.float32, DType.U8: np.uint8}
S, F = ValueSource, CompletionField


@dataclass(frozen=True)
class Drawn:
    """One drawn token. `logprob` and `top` (id -> value, most likely first) are the model's own
    log-probabilities at its position; None and empty when the request or the core does not have them."""

    token: int
    logprob: float | None = None
    top: Mapping[int, float] = field(default_factory=dict)


@dataclass
class DirectRequest:
    """One sequence on one slot, with pages of its own. `consumed` counts tokens in the model state, the first
    of `history`; `draws` describes `tokens`, what was drawn; `seen` are the images of its prompt."""

    slot: int
    pages: list[int]
    epoch: int = 1
    consumed: int = 0
    logprobs: int | None = None
    draws: list[Drawn] = field(default_factory=list)
    history: list[int] = field(default_factory=list)
    seen: SeenImages = TEXT

    @property
    def tokens(self) -> list[int]:
        """Ids of everything drawn."""
        return [drawn.token for drawn in self.draws]


class DirectRunner:
    """Drives a device by hand. Pages are dealt out consecutively."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.contract: PreparedContract = device.contract
        self.programs = {program.name: program for program in self.contract.programs}
        self._next_page = 1
        self.elapsed_us = 0.0
        delivered = [table for table in self.contract.tables if table.name in device.tables]
        self._lookups = {table.name: lookup_of(table) for table in delivered}
        self._readers = {t.name: TableReader(device.tables[t.name], t.row_bytes) for t in delivered}

    def reuse_pages(self) -> None:
        """Deal pages from the beginning again; requests made before must not run any more."""
        self._next_page = 1

    def staging(self, program: Program, values: Mapping[ValueSource, object]) -> Bytes:
        """Upload bytes of `program`; sources without a value are -1 (integers) or 0. The value of rows of
        tables is, for every token row, the tokens up to it."""
        upload = np.zeros(max(program.upload_bytes, 1), np.uint8)
        unknown = set(values) - {binding.source for binding in program.bindings}
        assert not unknown, f"{program.name} does not bind {unknown}"
        for binding in program.bindings:
            target = _array(upload, binding.view)
            if binding.table is not None:
                self._look_up(binding.table, values.get(binding.source, ()), target)
            elif binding.source in values:
                value = np.asarray(values[binding.source], target.dtype)
                if value.ndim == target.ndim:
                    target[...] = _filler(binding.source, target)
                    target[tuple(map(slice, value.shape))] = value
                else:
                    target[...] = value
            else:
                target[...] = _filler(binding.source, target)
        return upload

    def encode(self, request: DirectRequest, images: Sequence[EncodableImage], rope_positions: bytes) -> None:
        """Make the features of all images of a prompt with positions i32[3, T], before `request` is
        prefilled. They last until those of another are made."""
        first = 0
        for image in images:
            count = math.prod(image.grid)
            program = next(p for p in self.contract.of_kind(ProgramKind.VISION) if p.tokens >= count)
            patches = np.frombuffer(image.patches, np.float32).reshape(count, -1)
            values = {S.PATCHES: patches, S.IMAGE_GRID: image.grid, S.FEATURE_OFFSET: [first]}
            self.run(program.name, values)
            first += image.tokens
        request.seen = SeenImages.of(images, rope_positions)

    def _look_up(self, table: str, histories: object, target: NDArray[np.generic]) -> None:
        lookup, read = self._lookups[table], self._readers[table]
        for row, history in enumerate(cast(Sequence[Sequence[int]], histories)):
            if history:
                found = lookup.rows(history[-1 - lookup.context : -1], history[-1:])
                target[row] = read(found[0])

    def run(
        self, name: str, values: Mapping[ValueSource, object]
    ) -> dict[CompletionField, NDArray[np.generic]]:
        """Run one program to completion; returns its completion fields."""
        program = self.programs[name]
        frame = self.device.submit(name, self.staging(program, values))
        frame.wait()
        self.elapsed_us = frame.elapsed_us
        return {binding.field: _array(frame.completion, binding.view) for binding in program.completion}

    def start(
        self,
        slot: int,
        prompt: Sequence[int],
        *,
        seed: int = 0,
        max_tokens: int | None = None,
        temperature: float | None = None,
        logprobs: int | None = None,
        extra: Mapping[ValueSource, object] | None = None,
    ) -> DirectRequest:
        """Begin a request on `slot` with pages for a whole context. `logprobs`: alternatives to report per
        token, of a core that reports them."""
        count = self.contract.pages_per_request
        pages = list(range(self._next_page, self._next_page + count))
        assert pages[-1] < self.contract.capacities.pages, "out of pages"
        self._next_page += count
        request = DirectRequest(slot, pages, logprobs=logprobs)
        defaults = self.contract.frontend.default_sampling
        values: dict[ValueSource, object] = {
            S.LANE_SLOTS: [slot],
            S.EPOCHS: [request.epoch],
            S.LIVE_ROWS: [self.contract.capacities.live_row(slot)],
            S.SOURCE_ROW: [0],
            S.PAGE_TABLE_ROW: pages,
            S.PROMPT_TOKENS: list(prompt),
            S.PROMPT_LENGTH: [len(prompt)],
            S.OUTPUT_LENGTH: [0],
            S.TEMPERATURE: [temperature or defaults.temperature],
            S.TOP_K: [defaults.top_k],
            S.TOP_P: [defaults.top_p],
            S.MIN_P: [defaults.min_p],
            S.REPETITION_PENALTY: [defaults.repetition_penalty],
            S.PRESENCE_PENALTY: [defaults.presence_penalty],
            S.FREQUENCY_PENALTY: [defaults.frequency_penalty],
            S.SEED: [seed],
            S.MIN_TOKENS: [0],
            S.MAX_TOKENS: [max_tokens or self.contract.capacities.context],
            S.LOGPROBS_WANTED: [-1 if logprobs is None else logprobs],
        }
        self._run_bound(self.contract.of_kind(ProgramKind.START)[0], values | dict(extra or {}))
        return request

    def prefill(self, request: DirectRequest, tokens: Sequence[int], *, sample: bool, name: str) -> list[int]:
        """Run one chunk through prefill program `name`; returns the drawn token, if any."""
        values = self.prefill_values(request, tokens, sample=sample)
        extent = {S.QUERY_START: [0, len(tokens)], S.CONSUMED_COUNTS: [request.consumed]}
        result = self._run_bound(self.programs[name], values | extent)
        request.consumed += len(tokens)
        return self._drawn(result, 0, request)

    def prefill_values(
        self, request: DirectRequest, tokens: Sequence[int], *, sample: bool
    ) -> dict[ValueSource, object]:
        """Values of one prefill chunk."""
        begin = request.consumed
        request.history[begin:] = tokens
        ends = range(begin + 1, begin + 1 + len(tokens))
        return self._with_rows([self._recent(request, end) for end in ends]) | {
            S.TOKEN_IDS: list(tokens),
            S.LANE_SLOTS: [request.slot],
            S.LIVE_ROWS: [self.contract.capacities.live_row(request.slot)],
            S.QUERY_LENGTHS: [len(tokens)],
            S.SAMPLE_LANES: [int(sample)],
            **self._with_images([request], len(tokens), prompt=True),
        }

    def prefill_all(self, request: DirectRequest, tokens: Sequence[int]) -> list[int]:
        """Prefill everything, largest chunks first; returns the drawn token."""
        programs = self.contract.of_kind(ProgramKind.PREFILL)
        position = 0
        drawn: list[int] = []
        while position < len(tokens):
            rest = len(tokens) - position
            program = next((p for p in programs if p.tokens >= rest), programs[-1])
            chunk = tokens[position : position + program.tokens]
            position += len(chunk)
            drawn = self.prefill(request, chunk, sample=position == len(tokens), name=program.name)
        return drawn

    def resume(self, request: DirectRequest, name: str) -> list[int]:
        """Draw from the saved hidden vector of the request's row; returns the drawn token."""
        live = self.contract.capacities.live_row(request.slot)
        result = self.run(name, {S.LANE_SLOTS: [request.slot], S.LIVE_ROWS: [live]})
        return self._drawn(result, 0, request)

    def decode(self, lanes: Sequence[DirectRequest | None], name: str) -> list[list[int]]:
        """One decode step; None is an idle lane. Returns drawn tokens per lane."""
        pending = [-1 if r is None else r.draws[-1].token for r in lanes]
        values = self.decode_values(lanes, pending) | {S.PENDING_TOKENS: pending}
        result = self._run_bound(self.programs[name], values)
        drawn: list[list[int]] = []
        for index, request in enumerate(lanes):
            if request is None:
                drawn.append([])
                continue
            request.consumed += 1
            drawn.append(self._drawn(result, index, request))
        return drawn

    def decode_values(
        self, lanes: Sequence[DirectRequest | None], pending: Sequence[int] = ()
    ) -> dict[ValueSource, object]:
        """Values of one decode step. `pending` are the tokens that lanes consume, which a core needs to be
        told when the host gives it rows of tables."""
        live = self.contract.capacities.live_row
        recent: list[Sequence[int]] = []
        for request, token in zip(lanes, pending, strict=False):
            if request is not None:
                request.history[request.consumed :] = [token]
            recent.append(() if request is None else self._recent(request, request.consumed + 1))
        fed = {S.PENDING_TOKENS: list(pending)} if self._lookups else {}
        return (
            self._with_rows(recent)
            | fed
            | {
                S.LANE_SLOTS: [-1 if r is None else r.slot for r in lanes],
                S.LIVE_ROWS: [-1 if r is None else live(r.slot) for r in lanes],
                **self._with_images(lanes, 1, prompt=False),
            }
        )

    def _recent(self, request: DirectRequest, end: int) -> Sequence[int]:
        """The tokens before `end` that decide about the rows of the last."""
        context = max((lookup.context for lookup in self._lookups.values()), default=0)
        return request.history[max(end - 1 - context, 0) : end]

    def _with_rows(self, histories: Sequence[Sequence[int]]) -> dict[ValueSource, object]:
        return {S.TABLE_ROWS: histories} if self._lookups else {}

    def _with_images(
        self, lanes: Sequence[DirectRequest | None], length: int, *, prompt: bool
    ) -> dict[ValueSource, object]:
        """What the next `length` tokens of every lane bring in a core with images; features in a `prompt`."""
        if not self.contract.capacities.image_patches:
            return {}
        of = [TEXT.rows(0, length) if r is None else r.seen.rows(r.consumed, length) for r in lanes]
        features, positions = zip(*of, strict=True)
        found: dict[ValueSource, object] = {S.ROPE_POSITIONS: np.concatenate(positions, axis=1)}
        return found | ({S.FEATURE_INDICES: np.concatenate(features)} if prompt else {})

    def _drawn(
        self, result: Mapping[CompletionField, NDArray[np.generic]], lane: int, request: DirectRequest
    ) -> list[int]:
        record = result[CompletionField.RECORDS][lane]
        count = int(record[Record.TOKENS])
        tokens = [int(token) for token in record[METADATA_FIELDS : METADATA_FIELDS + count]]
        for index, token in enumerate(tokens):
            if request.logprobs is None or F.LOGPROBS not in result:
                request.draws.append(Drawn(token))
                continue
            top: dict[int, float] = {}
            if F.TOP_IDS in result and F.TOP_LOGPROBS in result:
                ids, values = (
                    result[f][lane, index, : request.logprobs] for f in (F.TOP_IDS, F.TOP_LOGPROBS)
                )
                top = {i: value for i, value in zip(ids.tolist(), values.tolist(), strict=True) if i >= 0}
            request.draws.append(Drawn(token, float(result[F.LOGPROBS][lane, index]), top))
        return tokens

    def _run_bound(
        self, program: Program, values: Mapping[ValueSource, object]
    ) -> dict[CompletionField, NDArray[np.generic]]:
        """Run with those of `values` that the program takes."""
        bound = {binding.source for binding in program.bindings}
        return self.run(program.name, {source: v for source, v in values.items() if source in bound})


def _filler(source: ValueSource, target: NDArray[np.generic]) -> int:
    """What a view holds where there is no value."""
    return -1 if target.dtype.kind == "i" and source is not S.ROPE_POSITIONS else 0


def _array(data: Bytes, view: BufferView) -> NDArray[np.generic]:
    length = math.prod(view.shape) * view.dtype.itemsize
    typed: NDArray[np.generic] = data[view.offset : view.offset + length].view(_NUMPY[view.dtype])
    return typed.reshape(view.shape)
