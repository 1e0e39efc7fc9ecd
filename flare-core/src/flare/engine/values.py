"""The type and shape every value source has in an upload, as `flare.contract.values` declares them."""

from __future__ import annotations

from dataclasses import dataclass

from flare.contract import METADATA_FIELDS, CompletionField, DType, PreparedContract, Program, ValueSource
from flare.device.lookups import lookup_of

V = ValueSource
F = CompletionField


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Element type and shape of a dense array."""

    dtype: DType
    shape: tuple[int, ...]


def value_type(
    source: ValueSource, program: Program, contract: PreparedContract, table: str | None = None
) -> ArrayType | None:
    """What `source` (of `table`, for rows of one) must be bound to in `program`, or None for sources this
    engine does not produce. Raises CoreError for a table with an unknown lookup."""
    capacities = contract.capacities
    lanes, tokens = program.lanes, program.tokens
    i32 = DType.I32
    match source:
        case V.TOKEN_IDS:
            return ArrayType(i32, (tokens,))
        case (
            V.LANE_SLOTS
            | V.EPOCHS
            | V.LIVE_ROWS
            | V.QUERY_LENGTHS
            | V.CONSUMED_COUNTS
            | V.SAMPLE_LANES
            | V.PENDING_TOKENS
        ):
            return ArrayType(i32, (lanes,))
        case V.ROPE_POSITIONS:
            return ArrayType(i32, (3, tokens))
        case V.FEATURE_INDICES:
            return ArrayType(i32, (tokens,))
        case V.IMAGE_GRID:
            return ArrayType(i32, (3,))
        case V.QUERY_START:
            return ArrayType(i32, (lanes + 1,))
        case V.PAGE_UPDATES:
            if program.speculation is None:
                return ArrayType(i32, (lanes, 2))
            pages = -(-capacities.verification_width // contract.page.page_tokens)
            return ArrayType(i32, (lanes, pages, 2))
        case V.TABLE_ROWS:
            resource = next((known for known in contract.tables if known.name == table), None)
            if resource is None:
                return None
            return ArrayType(DType.U8, (tokens, lookup_of(resource).rows_per_token, resource.row_bytes))
        case V.GRAMMAR_MASK:
            words = -(-contract.frontend.vocab_size // 32)
            width = () if program.speculation is None else (program.speculation.width,)
            return ArrayType(i32, (lanes, *width, words))
        case V.HOST_PROPOSALS if program.speculation is not None:
            return ArrayType(i32, (lanes, program.speculation.depth))
        case V.PAGE_TABLE_ROW:
            return ArrayType(i32, (contract.pages_per_request,))
        case V.PROMPT_TOKENS:
            return ArrayType(i32, (capacities.context,))
        case (
            V.SOURCE_ROW
            | V.DESTINATION_ROW
            | V.SOURCE_PAGE
            | V.FEATURE_OFFSET
            | V.DESTINATION_PAGE
            | V.PROMPT_LENGTH
            | V.OUTPUT_LENGTH
            | V.TOP_K
            | V.MIN_TOKENS
            | V.MAX_TOKENS
            | V.LOGPROBS_WANTED
        ):
            return ArrayType(i32, (1,))
        case (
            V.TEMPERATURE
            | V.TOP_P
            | V.MIN_P
            | V.REPETITION_PENALTY
            | V.PRESENCE_PENALTY
            | V.FREQUENCY_PENALTY
        ):
            return ArrayType(DType.F32, (1,))
        case V.SEED:
            return ArrayType(DType.I64, (1,))
        case V.STOP_TOKEN_IDS:
            return ArrayType(i32, (capacities.stop_token_ids,))
        case V.LOGIT_BIAS_IDS:
            return ArrayType(i32, (capacities.logit_bias,))
        case V.LOGIT_BIAS_VALUES:
            return ArrayType(DType.F32, (capacities.logit_bias,))
        case _:
            return None


def completion_type(field: CompletionField, program: Program, contract: PreparedContract) -> ArrayType | None:
    """What `field` must be bound to in `program`, or None for fields this engine does not read."""
    capacities = contract.capacities
    lanes, tokens, top = program.lanes, capacities.completion_tokens, capacities.logprobs
    match field:
        case F.RECORDS:
            return ArrayType(DType.I32, (lanes, METADATA_FIELDS + tokens))
        case F.LOGPROBS:
            return ArrayType(DType.F32, (lanes, tokens))
        case F.TOP_IDS:
            return ArrayType(DType.I32, (lanes, tokens, top))
        case F.TOP_LOGPROBS:
            return ArrayType(DType.F32, (lanes, tokens, top))
        case _:
            return None
