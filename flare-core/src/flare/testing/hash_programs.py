"""The programs of the hash model, as operator lists over its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import flare.device.sim_inputs
import flare.device.sim_speculation
import flare.device.sim_tables  # noqa: F401
from flare.contract import (
    METADATA_FIELDS,
    BufferSpec,
    BufferView,
    Capacities,
    CompletionField,
    DType,
    PageGeometry,
    RowGeometry,
    SpeculativeShape,
    TableResource,
    ValueSource,
)
from flare.device.sim_ops import OPERATORS
from flare.device.sim_sequence import Fields
from flare.testing.assembly import Assembly

V = ValueSource
Operand = dict[str, int]
_SCHEMAS = {name: operator.schema_text for name, operator in OPERATORS.items()}
DRAW_STATE = ("epochs", "seeds", "prompt_hashes", "min_tokens", "max_tokens", "stops")


@dataclass(frozen=True, slots=True)
class Drafts:
    """Where speculative programs take tokens from: proposals uploaded by the `host` or made on the device,
    where `agreement` of 256 are what will be drawn; pending tokens `host_fed` or in device state."""

    host: bool
    agreement: int
    host_fed: bool


@dataclass(frozen=True, slots=True)
class HashState:
    """Where the model keeps what: per-slot buffers by name, and the page and row blocks."""

    capacities: Capacities
    page: PageGeometry
    row: RowGeometry
    slots: dict[str, BufferSpec]
    pages_per_request: int
    vocab_size: int
    table: TableResource | None = None
    resident: bool = False
    images: bool = False
    masked: bool = False

    @property
    def mask_words(self) -> int:
        """Words of a grammar mask."""
        return -(-self.vocab_size // 32)

    def slot(self, program: Assembly, name: str) -> Operand:
        """Per-slot state as an operand, [S, ...]."""
        buffer = self.slots[name]
        return program.view(BufferView(buffer=buffer.name, dtype=buffer.dtype, shape=buffer.shape))

    def fields(self, program: Assembly) -> list[Operand]:
        """Every field of pages and rows, in the order of `flare.device.sim_sequence.Fields`."""
        return [self.field(program, name) for name in Fields._fields]

    def field(self, program: Assembly, name: str) -> Operand:
        """One field of all pages [P, ...] or of all rows [R, ...]."""
        if name in ("entries", "groups"):
            return program.view(self.page.view("pages", name, self.capacities.pages, layer=0))
        stored = {"open": "groups.open"}.get(name, name)
        return program.view(self.row.view("rows", stored, self.capacities.rows, layer=0))

    def blocks(self, program: Assembly, buffer: str) -> Operand:
        """Whole pages or rows, u8[blocks, block bytes]."""
        count = self.capacities.pages if buffer == "pages" else self.capacities.rows
        nbytes = self.page.nbytes if buffer == "pages" else self.row.nbytes
        return program.view(BufferView(buffer=buffer, dtype=DType.U8, shape=(count, nbytes)))


TABLE, TABLE_LOOKUPS, TABLE_ROW_BYTES = "grams", 4, 8
FEATURES = "features"


def start(state: HashState) -> Assembly:
    """A slot begins a request on an empty row."""
    p, i32 = Assembly(_SCHEMAS), DType.I32
    slot = p.value(V.LANE_SLOTS, i32, 1)
    row = p.value(V.LIVE_ROWS, i32, 1)
    p.call("sim::fill", state.blocks(p, "rows"), row, 0)
    p.call("sim::fill", state.field(p, "history"), row, -1)
    for name in ("consumed", "generated", "finished", "columns"):
        p.call("sim::fill", state.slot(p, name), slot, 0)
    for name, source, dtype in (
        ("epochs", V.EPOCHS, i32),
        ("seeds", V.SEED, DType.I64),
        ("min_tokens", V.MIN_TOKENS, i32),
        ("max_tokens", V.MAX_TOKENS, i32),
    ):
        p.call("sim::scatter", state.slot(p, name), slot, p.value(source, dtype, 1))
    table = p.value(V.PAGE_TABLE_ROW, i32, state.pages_per_request)
    p.call("sim::scatter_row", state.slot(p, "tables"), slot, table)
    stops = p.value(V.STOP_TOKEN_IDS, i32, state.capacities.stop_token_ids)
    p.call("sim::scatter_row", state.slot(p, "stops"), slot, stops)
    prompt = p.value(V.PROMPT_TOKENS, i32, state.capacities.context)
    lengths = p.value(V.PROMPT_LENGTH, i32, 1), p.value(V.OUTPUT_LENGTH, i32, 1)
    counts = p.call("sim::count_history", prompt, *lengths, results=1)
    p.call("sim::scatter", state.slot(p, "prompt_hashes"), slot, counts)
    return p


def prefill(state: HashState, tokens: int) -> Assembly:
    """Consume a chunk of one prompt, and draw when it is the last."""
    p, i32 = Assembly(_SCHEMAS), DType.I32
    chunk = p.value(V.TOKEN_IDS, i32, tokens)
    query_start = p.value(V.QUERY_START, i32, 2)
    slots, rows = p.value(V.LANE_SLOTS, i32, 1), p.value(V.LIVE_ROWS, i32, 1)
    _consume(p, state, chunk, tokens, query_start, slots, rows)
    _draw(p, state, slots, rows, p.value(V.SAMPLE_LANES, i32, 1), lanes=1)
    return p


def decode(state: HashState, lanes: int, host_fed: bool) -> Assembly:
    """Consume every lane's pending token and draw the next. `host_fed` tokens are uploaded instead of read
    from device state."""
    p, i32 = Assembly(_SCHEMAS), DType.I32
    slots, rows = p.value(V.LANE_SLOTS, i32, lanes), p.value(V.LIVE_ROWS, i32, lanes)
    p.call("sim::extend_tables", state.slot(p, "tables"), slots, p.value(V.PAGE_UPDATES, i32, lanes, 2))
    _consume(p, state, _pending(p, state, slots, lanes, host_fed), lanes, None, slots, rows)
    _draw(p, state, slots, rows, None, lanes)
    return p


def speculative(state: HashState, shape: SpeculativeShape, drafts: Drafts) -> Assembly:
    """Propose, verify every lane's pending token and proposals, and commit the accepted ones."""
    p, i32, lanes = Assembly(_SCHEMAS), DType.I32, shape.requests
    slots, rows = p.value(V.LANE_SLOTS, i32, lanes), p.value(V.LIVE_ROWS, i32, lanes)
    lengths = p.value(V.QUERY_LENGTHS, i32, lanes)
    pages = -(-state.capacities.verification_width // state.page.page_tokens)
    updates = p.value(V.PAGE_UPDATES, i32, lanes, pages, 2)
    p.call("sim::append_pages", state.slot(p, "tables"), slots, updates)
    pending = _pending(p, state, slots, lanes, drafts.host_fed)
    proposals = None
    if shape.depth and drafts.host:
        proposals = p.value(V.HOST_PROPOSALS, i32, lanes, shape.depth)
    elif shape.depth:
        names = "finished tables consumed columns generated seeds prompt_hashes min_tokens stops"
        proposals = p.call(
            "sim::propose",
            pending,
            lengths,
            shape.depth,
            state.vocab_size,
            drafts.agreement,
            slots,
            rows,
            *(state.slot(p, name) for name in names.split()),
            *state.fields(p),
            results=1,
        )
    stride = shape.width if shape.rows == lanes * shape.width else 0
    inputs = p.call("sim::verification_inputs", pending, proposals, lengths, shape.rows, stride, results=2)
    starts = {"t": inputs["t"] + 1}
    per_slot = [state.slot(p, name) for name in ("finished", "tables", "consumed", "columns")]
    p.call(
        "sim::verify",
        inputs,
        _conditions(p, state, shape.rows, (inputs, starts, lengths, slots, rows)),
        starts,
        lengths,
        slots,
        rows,
        *per_slot,
        *state.fields(p),
    )
    records = _records(p, state, lanes)
    operands = inputs, starts, lengths, slots, rows, *_draw_operands(p, state), records
    if state.masked:
        masks = p.value(V.GRAMMAR_MASK, i32, lanes, shape.width, state.mask_words)
        accepted = p.call("sim::accept_masked", masks, *operands, results=1)
    else:
        accepted = p.call("sim::accept", *operands, results=1)
    first_row = [state.field(p, name) for name in ("entries", "window", "open", "history")]
    p.call("sim::commit", inputs, starts, accepted, slots, rows, *per_slot[1:], *first_row)
    p.call("sim::count_output", state.slot(p, "prompt_hashes"), records)
    return p


def resume(state: HashState) -> Assembly:
    """Draw from a restored row's saved hidden."""
    p, i32 = Assembly(_SCHEMAS), DType.I32
    slots, rows = p.value(V.LANE_SLOTS, i32, 1), p.value(V.LIVE_ROWS, i32, 1)
    _draw(p, state, slots, rows, None, lanes=1)
    return p


def snapshot(state: HashState) -> Assembly:
    """Freeze a live row and the partial tail page."""
    p = Assembly(_SCHEMAS)
    rows = _copy(p, state)
    if state.capacities.verification_width > 1:
        fields = (state.field(p, name) for name in ("recurrent", "conv", "counter", "hidden"))
        slots = p.value(V.LANE_SLOTS, DType.I32, 1)
        p.call("sim::take_column", slots, state.slot(p, "columns"), *rows, *fields)
    return p


def restore(state: HashState) -> Assembly:
    """Fill a started slot's live row and tail page from a snapshot of CONSUMED_COUNTS tokens."""
    p, i32 = Assembly(_SCHEMAS), DType.I32
    _copy(p, state)
    slots = p.value(V.LANE_SLOTS, i32, 1)
    p.call("sim::scatter", state.slot(p, "consumed"), slots, p.value(V.CONSUMED_COUNTS, i32, 1))
    p.call("sim::fill", state.slot(p, "columns"), slots, 0)
    return p


def _copy(p: Assembly, state: HashState) -> tuple[Operand, Operand]:
    """Copy a row and a page; returns the numbers of the rows."""
    rows = p.value(V.SOURCE_ROW, DType.I32, 1), p.value(V.DESTINATION_ROW, DType.I32, 1)
    p.call("sim::copy_block", state.blocks(p, "rows"), *rows)
    pages = p.value(V.SOURCE_PAGE, DType.I32, 1), p.value(V.DESTINATION_PAGE, DType.I32, 1)
    p.call("sim::copy_block", state.blocks(p, "pages"), *pages)
    return rows


def _consume(
    p: Assembly,
    state: HashState,
    tokens: Operand,
    count: int,
    query_start: Operand | None,
    slots: Operand,
    rows: Operand,
) -> None:
    p.call(
        "sim::advance",
        tokens,
        _conditions(
            p, state, count, (tokens, query_start, None, slots, rows), prompt=query_start is not None
        ),
        query_start,
        slots,
        rows,
        *(state.slot(p, name) for name in ("finished", "tables", "consumed", "columns")),
        *state.fields(p),
    )


def _conditions(
    p: Assembly, state: HashState, tokens: int, read: Sequence[Operand | None], prompt: bool = False
) -> Operand | None:
    """What token rows bring besides their tokens; features only in a `prompt`. `read` are the first operands
    of `sim::read_grams`."""
    if not (state.table or state.images):
        return None
    rows = indices = features = positions = None
    if state.table and state.resident:
        shape = (state.table.rows, state.table.row_bytes)
        table = p.view(BufferView(buffer=TABLE, dtype=DType.U8, shape=shape))
        consumed, history = state.slot(p, "consumed"), state.field(p, "history")
        parameters = list(state.table.parameters)
        rows = p.call("sim::read_grams", *read, consumed, history, table, parameters, results=1)
    elif state.table:
        rows = p.value(V.TABLE_ROWS, DType.U8, tokens, TABLE_LOOKUPS, TABLE_ROW_BYTES, table=TABLE)
    if state.images:
        positions = p.value(V.ROPE_POSITIONS, DType.I32, 3, tokens)
        if prompt:
            indices, features = p.value(V.FEATURE_INDICES, DType.I32, tokens), _features(p, state)
    return p.call("sim::conditions", tokens, rows, indices, features, positions, results=1)


def _features(p: Assembly, state: HashState) -> Operand:
    count = state.capacities.image_features
    return p.view(BufferView(buffer=FEATURES, dtype=DType.U64, shape=(count,)))


def vision(state: HashState, patches: int) -> Assembly:
    """Make the features of an image of at most `patches` patches."""
    p = Assembly(_SCHEMAS)
    content = p.value(V.PATCHES, DType.U64, patches, 1)
    grid, offset = p.value(V.IMAGE_GRID, DType.I32, 3), p.value(V.FEATURE_OFFSET, DType.I32, 1)
    p.call("sim::encode", content, grid, offset, _features(p, state))
    return p


def _pending(p: Assembly, state: HashState, slots: Operand, lanes: int, host_fed: bool) -> Operand:
    if host_fed:
        return p.value(V.PENDING_TOKENS, DType.I32, lanes)
    return p.call("sim::gather", state.slot(p, "pending"), slots, results=1)


def _draw(
    p: Assembly, state: HashState, slots: Operand, rows: Operand, sample: Operand | None, lanes: int
) -> None:
    records = _records(p, state, lanes)
    operands = slots, rows, sample, *_draw_operands(p, state), records
    if state.masked:
        p.call("sim::draw_masked", p.value(V.GRAMMAR_MASK, DType.I32, lanes, state.mask_words), *operands)
    else:
        p.call("sim::draw", *operands)
    p.call("sim::count_output", state.slot(p, "prompt_hashes"), records)


def _records(p: Assembly, state: HashState, lanes: int) -> Operand:
    width = METADATA_FIELDS + state.capacities.completion_tokens
    return p.report(CompletionField.RECORDS, DType.I32, lanes, width)


def _draw_operands(p: Assembly, state: HashState) -> list[Operand | int]:
    return [
        state.vocab_size,
        state.field(p, "hidden"),
        *(state.slot(p, name) for name in ("consumed", *DRAW_STATE, "generated", "finished", "pending")),
    ]
