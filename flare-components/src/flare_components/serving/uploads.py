"""Value sources a program binds, with the shape each has there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flare.contract import Capacities, DType, TableResource, ValueBinding, ValueSource
from flare.device.lookups import lookup_of
from flare.prepare import Window

S = ValueSource


@dataclass(frozen=True)
class UploadShape:
    """Dimensions that uploaded values take: L lanes, N token rows, the core's capacities, and the tables
    whose rows the host delivers; V tokens of the vocabulary. In a vision program token rows are patches of
    `patch_elements` numbers."""

    lanes: int
    tokens: int
    pages_per_request: int
    capacities: Capacities
    tables: tuple[TableResource, ...] = ()
    patch_elements: int = 0
    vocab_size: int = 0

    def of(self, source: ValueSource) -> tuple[DType, tuple[int, ...]]:
        """Element type and shape of `source`. Raises KeyError for a source no program here binds."""
        return (self.shapes | self.of_placeholders | self.of_patches)[source]

    @property
    def shapes(self) -> dict[ValueSource, tuple[DType, tuple[int, ...]]]:
        """Element type and shape of every source that programs here may bind."""
        one = (1,)
        return {
            S.TOKEN_IDS: (DType.I32, (self.tokens,)),
            S.LANE_SLOTS: (DType.I32, (self.lanes,)),
            S.EPOCHS: (DType.I32, (self.lanes,)),
            S.LIVE_ROWS: (DType.I32, (self.lanes,)),
            S.QUERY_LENGTHS: (DType.I32, (self.lanes,)),
            S.CONSUMED_COUNTS: (DType.I32, (self.lanes,)),
            S.SAMPLE_LANES: (DType.I32, (self.lanes,)),
            S.PENDING_TOKENS: (DType.I32, (self.lanes,)),
            S.PAGE_UPDATES: (DType.I32, (self.lanes, 2)),
            S.GRAMMAR_MASK: (DType.I32, (self.lanes, -(-self.vocab_size // 32))),
            S.PAGE_TABLE_ROW: (DType.I32, (self.pages_per_request,)),
            S.PROMPT_TOKENS: (DType.I32, (self.capacities.context,)),
            S.PROMPT_LENGTH: (DType.I32, one),
            S.OUTPUT_LENGTH: (DType.I32, one),
            S.TEMPERATURE: (DType.F32, one),
            S.TOP_K: (DType.I32, one),
            S.TOP_P: (DType.F32, one),
            S.MIN_P: (DType.F32, one),
            S.REPETITION_PENALTY: (DType.F32, one),
            S.PRESENCE_PENALTY: (DType.F32, one),
            S.FREQUENCY_PENALTY: (DType.F32, one),
            S.SEED: (DType.I64, one),
            S.MIN_TOKENS: (DType.I32, one),
            S.MAX_TOKENS: (DType.I32, one),
            S.STOP_TOKEN_IDS: (DType.I32, (self.capacities.stop_token_ids,)),
            S.LOGIT_BIAS_IDS: (DType.I32, (self.capacities.logit_bias,)),
            S.LOGIT_BIAS_VALUES: (DType.F32, (self.capacities.logit_bias,)),
            S.LOGPROBS_WANTED: (DType.I32, one),
            S.SOURCE_ROW: (DType.I32, one),
            S.DESTINATION_ROW: (DType.I32, one),
            S.SOURCE_PAGE: (DType.I32, one),
            S.DESTINATION_PAGE: (DType.I32, one),
        }

    @property
    def of_placeholders(self) -> dict[ValueSource, tuple[DType, tuple[int, ...]]]:
        """The same of what token rows get where a model has images."""
        return {
            S.ROPE_POSITIONS: (DType.I32, (3, self.tokens)),
            S.FEATURE_INDICES: (DType.I32, (self.tokens,)),
        }

    @property
    def of_patches(self) -> dict[ValueSource, tuple[DType, tuple[int, ...]]]:
        """The same of vision programs."""
        return {
            S.PATCHES: (DType.F32, (self.tokens, self.patch_elements)),
            S.IMAGE_GRID: (DType.I32, (3,)),
            S.FEATURE_OFFSET: (DType.I32, (1,)),
        }

    def rows_of(self, table: TableResource) -> tuple[DType, tuple[int, ...]]:
        """Element type and shape of the rows of `table` that the tokens of a program need."""
        return DType.U8, (self.tokens, lookup_of(table).rows_per_token, table.row_bytes)

    @property
    def everything(self) -> list[tuple[DType, tuple[int, ...]]]:
        """Element types and shapes of all that a program may bind, save one for vision."""
        placeholders = self.of_placeholders.values() if self.patch_elements else ()
        return [*self.shapes.values(), *placeholders, *map(self.rows_of, self.tables)]

    def bind(self, sources: Sequence[ValueSource]) -> tuple[ValueBinding, ...]:
        """Bindings of `sources`, packed from the beginning of the upload buffer in the given order; of
        `TABLE_ROWS` one for every table."""
        window = Window("upload")
        bindings: list[ValueBinding] = []
        for source in sources:
            if source is S.TABLE_ROWS:
                for table in self.tables:
                    view = window.add(*self.rows_of(table))
                    bindings.append(ValueBinding(source=source, view=view, table=table.name))
            else:
                bindings.append(ValueBinding(source=source, view=window.add(*self.of(source))))
        return tuple(bindings)
