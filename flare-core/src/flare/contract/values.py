"""Value sources: what the runtime knows how to produce for any model.

A program binds sources to views of the upload buffer. Dimensions: L lanes and N token rows of the program,
MP pages per request (context / page_tokens rounded up), K stop tokens, B logit biases, C context. Padding
lanes and rows hold -1 for indices and 0 for amounts. A recipe picks from the list; a new source is a
reviewed addition here and in `flare.engine.packing`.
"""

from __future__ import annotations

from enum import StrEnum

from flare.contract.base import ContractModel
from flare.contract.buffers import BufferView


class ValueSource(StrEnum):
    """Semantic name of an uploaded value, with the shape and type its view must have."""

    # Per token row.
    TOKEN_IDS = "token_ids"  # i32[N] prompt tokens of a prefill chunk
    ROPE_POSITIONS = "rope_positions"  # i32[3, N] multimodal rotary positions: time, row, column; padding 0
    FEATURE_INDICES = "feature_indices"  # i32[N] image feature rows, -1 for text
    # Per lane.
    LANE_SLOTS = "lane_slots"  # i32[L] request slot
    EPOCHS = "epochs"  # i32[L] epoch of the slot's current request
    LIVE_ROWS = "live_rows"  # i32[L] first live row of the slot
    QUERY_START = "query_start"  # i32[L+1] first token row of every lane
    QUERY_LENGTHS = "query_lengths"  # i32[L] tokens of every lane
    CONSUMED_COUNTS = "consumed_counts"  # i32[L] tokens consumed before this program
    SAMPLE_LANES = "sample_lanes"  # i32[L] 1 when the lane draws a token
    # i32[L, 2] (logical page, physical page) appended to the lane's table; of a speculative program
    # i32[L, U, 2], where U pages hold `verification_width` tokens.
    PAGE_UPDATES = "page_updates"
    PENDING_TOKENS = "pending_tokens"  # i32[L] host-fed pending input
    HOST_PROPOSALS = "host_proposals"  # i32[L, D] copied draft tokens
    TABLE_ROWS = "table_rows"  # u8[N, R, row bytes] the R rows of a table resource that each token needs
    # i32[L, ceil(V/32)] bit 1 admits a token, low bit first; of a speculative program i32[L, W, ceil(V/32)],
    # behind each of the W inputs.
    GRAMMAR_MASK = "grammar_mask"
    # Start of a request (one lane).
    PAGE_TABLE_ROW = "page_table_row"  # i32[MP] physical pages of the request, 0 behind them
    PROMPT_TOKENS = "prompt_tokens"  # i32[C] the whole history, for penalties and lookup
    PROMPT_LENGTH = "prompt_length"  # i32[1]
    OUTPUT_LENGTH = "output_length"  # i32[1] trailing prompt tokens that are output of the same request
    TEMPERATURE = "temperature"  # f32[1]
    TOP_K = "top_k"  # i32[1] 0 off
    TOP_P = "top_p"  # f32[1] 1 off
    MIN_P = "min_p"  # f32[1] 0 off
    REPETITION_PENALTY = "repetition_penalty"  # f32[1]
    PRESENCE_PENALTY = "presence_penalty"  # f32[1]
    FREQUENCY_PENALTY = "frequency_penalty"  # f32[1]
    SEED = "seed"  # i64[1] bits of the unsigned Philox key
    MIN_TOKENS = "min_tokens"  # i32[1]
    MAX_TOKENS = "max_tokens"  # i32[1]
    STOP_TOKEN_IDS = "stop_token_ids"  # i32[K] -1 behind the last
    LOGIT_BIAS_IDS = "logit_bias_ids"  # i32[B] -1 behind the last
    LOGIT_BIAS_VALUES = "logit_bias_values"  # f32[B]
    LOGPROBS_WANTED = "logprobs_wanted"  # i32[1] -1 none
    # State transfer (one lane).
    SOURCE_ROW = "source_row"  # i32[1]
    DESTINATION_ROW = "destination_row"  # i32[1]
    SOURCE_PAGE = "source_page"  # i32[1] -1 when the endpoint is page-aligned
    DESTINATION_PAGE = "destination_page"  # i32[1]
    # Images. N is the patch capacity of a vision program; behind the image's patches rows are 0.
    PATCHES = "patches"  # any type [N, patch elements]
    IMAGE_GRID = "image_grid"  # i32[3] patches in time, rows and columns
    FEATURE_OFFSET = "feature_offset"  # i32[1] first row of the image's features


class ValueBinding(ContractModel):
    """Upload `source` into `view`, a dense window of the upload buffer."""

    source: ValueSource
    view: BufferView
    table: str | None = None  # the table resource, for TABLE_ROWS


class CompletionField(StrEnum):
    """What a program reports back, per lane. Record layout: `flare.contract.completion`."""

    RECORDS = "records"  # i32[L, 16 + C]
    LOGPROBS = "logprobs"  # f32[L, C] of the drawn tokens
    TOP_IDS = "top_ids"  # i32[L, C, T] most likely alternatives
    TOP_LOGPROBS = "top_logprobs"  # f32[L, C, T]
    CONFIDENCE = "confidence"  # f32[2, L, D]


class CompletionBinding(ContractModel):
    """Read `field` from `view`, a dense window of the completion buffer."""

    field: CompletionField
    view: BufferView
