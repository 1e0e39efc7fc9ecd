"""The generating programs: prefill, decode and resume, each ending in the same sampling step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from flare.contract import BufferView, CompletionField, ValueSource
from flare_components.ops.sampling import READS as SAMPLER_READS
from flare_components.serving.batch import Batch, Forward, ModelState
from flare_components.serving.module import ProgramModule, Registered
from flare_components.serving.ngram_hash import NgramHash
from flare_components.serving.storage import Storage

S = ValueSource
flare = torch.ops.flare


class GeneratingProgram(ProgramModule):
    """Shared parts: request state, model state, sampling and completion records."""

    probes = ("logits",)

    def __init__(
        self, storage: Storage, model: nn.Module, lanes: int, tokens: int, sources: tuple[ValueSource, ...]
    ) -> None:
        super().__init__(storage.shape(lanes, tokens).bind(sources))
        self.lanes, self.tokens = lanes, tokens
        self.page_tokens = storage.plan.page.page_tokens
        self.model = model
        self.request = self.place_all("state", storage.request)
        self.completion = storage.completion(lanes)
        self.report = self.place_all("completion", {b.field: b.view for b in self.completion})
        self.place("saved_hidden", storage.saved_hidden)
        self.spatial = storage.features is not None
        self.pages = {name: self._layers("pages", name, views) for name, views in storage.pages.items()}
        self.rows = {name: self._layers("rows", name, views) for name, views in storage.rows.items()}

    def _layers(self, region: str, scheme: str, views: tuple[BufferView, ...]) -> Registered[int]:
        return self.place_all(f"{region}_{scheme}", dict(enumerate(views)))

    @property
    def state(self) -> ModelState:
        """Views of every cache scheme, by layer."""
        return ModelState(
            pages={name: list(layers.values()) for name, layers in self.pages.items()},
            rows={name: list(layers.values()) for name, layers in self.rows.items()},
        )

    @property
    def rope_positions(self) -> Tensor | None:
        """i32[3, N] of the token rows, where positions have axes."""
        return self.upload[S.ROPE_POSITIONS] if self.spatial else None

    @property
    def served(self) -> Forward:
        """The model, by its serving interface."""
        return cast(Forward, self.model)

    def sample(self, logits: Tensor, slots: Tensor, reported: Tensor) -> None:
        """Draw for lanes `slots` i32[L] (-1 idle), commit, and report for lanes `reported` i32[L]."""
        r = self.request
        tokens, logprobs, top_ids, top_logprobs = flare.sample(
            logits, slots, *(r[name] for name in SAMPLER_READS[2:]), self.upload[S.GRAMMAR_MASK]
        )
        flare.commit_tokens(
            tokens,
            slots,
            r["counter"],
            r["generated"],
            r["output_counts"],
            r["pending"],
            r["finished"],
            r["max_tokens"],
            r["stop_ids"],
        )
        flare.write_completion(
            tokens,
            reported,
            r["epoch"],
            r["counter"],
            r["generated"],
            r["finished"],
            r["consumed"],
            logprobs,
            top_ids,
            top_logprobs,
            self.report[CompletionField.RECORDS],
            self.report[CompletionField.LOGPROBS],
            self.report[CompletionField.TOP_IDS],
            self.report[CompletionField.TOP_LOGPROBS],
        )


class ConsumingProgram(GeneratingProgram):
    """What consumes tokens, and so needs rows of tables: the host's, or those that it finds itself."""

    def __init__(
        self, storage: Storage, model: nn.Module, lanes: int, tokens: int, sources: tuple[ValueSource, ...]
    ) -> None:
        super().__init__(storage, model, lanes, tokens, sources)
        tables = storage.resident
        self.contents: Registered[str] = self.place_all("resident", {} if tables is None else tables.contents)
        self.hash: NgramHash | None = None
        if tables is not None:
            self.hash = NgramHash(
                order=tables.order,
                heads=tables.functions,
                boundary=tables.separator,
                tables=len(tables.contents),
                history=tables.history,
            )
            self.views |= {f"hash.{name}": view for name, view in tables.numbers.items()}

    def hidden(self, batch: Batch) -> Tensor:
        """Final hidden vectors [N, H] of `batch`, which gets the rows of tables here."""
        rows: Mapping[str, Tensor] = self.table_rows
        if self.hash is not None:
            found = self.hash(batch, self.state)
            rows = {
                name: flare.gather_rows(table, found[:, place].flatten()).view(*found[:, place].shape, -1)
                for place, (name, table) in enumerate(self.contents.items())
            }
        return self.served.hidden(replace(batch, table_rows=rows), self.state)


class PrefillProgram(ConsumingProgram):
    """One chunk of one request's prompt; draws the first token when the chunk is the last."""

    probes = ("hidden", "logits")
    SOURCES = (
        S.TOKEN_IDS,
        S.LANE_SLOTS,
        S.LIVE_ROWS,
        S.QUERY_LENGTHS,
        S.SAMPLE_LANES,
        S.PAGE_UPDATES,
        S.TABLE_ROWS,
        S.GRAMMAR_MASK,
    )

    def __init__(self, storage: Storage, model: nn.Module, tokens: int) -> None:
        images = (S.ROPE_POSITIONS, S.FEATURE_INDICES) if storage.features is not None else ()
        super().__init__(storage, model, 1, tokens, self.SOURCES + images)
        if storage.features is not None:
            self.place("features", storage.features)

    def forward(self) -> tuple[Tensor, Tensor]:
        u, r = self.upload, self.request
        slots, lengths = u[S.LANE_SLOTS], u[S.QUERY_LENGTHS]
        flare.extend_page_table(r["page_table"], slots, u[S.PAGE_UPDATES])
        offsets = torch.arange(self.tokens, dtype=torch.int32)
        start = flare.gather_rows(r["consumed"], slots)
        positions = start + offsets
        lanes = torch.where(offsets < lengths, 0, -1).to(torch.int32)
        page_table = flare.gather_rows(r["page_table"], slots)
        batch = Batch(
            ids=u[S.TOKEN_IDS],
            positions=positions,
            lanes=lanes,
            query_start=torch.cat([torch.zeros_like(lengths), lengths]),
            context_lens=start + lengths,
            page_table=page_table,
            slot_mapping=flare.slot_mapping(page_table, positions, lanes, self.page_tokens),
            live_rows=u[S.LIVE_ROWS],
            features=self.features if self.spatial else None,
            feature_indices=u[S.FEATURE_INDICES] if self.spatial else None,
            rope_positions=self.rope_positions,
        )
        hidden = self.hidden(batch)
        last = flare.gather_rows(hidden, lengths - 1)
        flare.scatter_rows(self.saved_hidden, u[S.LIVE_ROWS], last)
        flare.advance(slots, lengths, r["consumed"])
        logits = self.served.logits(last)
        sampled = torch.where(u[S.SAMPLE_LANES] > 0, slots, -1).to(torch.int32)
        self.sample(logits, sampled, slots)
        return hidden, logits


class DecodeProgram(ConsumingProgram):
    """One token of every lane: consume the pending token, draw the next. Where the host delivers rows of
    tables, it feeds the pending token as well, so that rows and token belong together."""

    SOURCES = (S.LANE_SLOTS, S.LIVE_ROWS, S.PAGE_UPDATES, S.TABLE_ROWS, S.GRAMMAR_MASK)

    def __init__(self, storage: Storage, model: nn.Module, lanes: int) -> None:
        fed = (S.PENDING_TOKENS,) if storage.tables else ()
        images = (S.ROPE_POSITIONS,) if storage.features is not None else ()
        super().__init__(storage, model, lanes, lanes, self.SOURCES + fed + images)

    def forward(self) -> tuple[Tensor]:
        u, r = self.upload, self.request
        flare.extend_page_table(r["page_table"], u[S.LANE_SLOTS], u[S.PAGE_UPDATES])
        ids, positions, slots = flare.decode_inputs(
            u[S.LANE_SLOTS], r["pending"], r["consumed"], r["finished"]
        )
        if S.PENDING_TOKENS in u:
            ids = torch.where(slots >= 0, u[S.PENDING_TOKENS], -1).to(torch.int32)
        counts = (slots >= 0).to(torch.int32)
        lane_index = torch.arange(self.lanes, dtype=torch.int32)
        lanes = torch.where(slots >= 0, lane_index, -1).to(torch.int32)
        page_table = flare.gather_rows(r["page_table"], slots)
        batch = Batch(
            ids=ids,
            positions=positions,
            lanes=lanes,
            query_start=torch.arange(self.lanes + 1, dtype=torch.int32),
            context_lens=(positions + 1) * counts,
            page_table=page_table,
            slot_mapping=flare.slot_mapping(page_table, positions, lanes, self.page_tokens),
            live_rows=torch.where(slots >= 0, u[S.LIVE_ROWS], -1).to(torch.int32),
            rope_positions=self.rope_positions,
        )
        hidden = self.hidden(batch)
        flare.scatter_rows(self.saved_hidden, batch.live_rows, hidden)
        flare.advance(slots, counts, r["consumed"])
        logits = self.served.logits(hidden)
        self.sample(logits, slots, u[S.LANE_SLOTS])
        return (logits,)


class ResumeProgram(GeneratingProgram):
    """Draws from the saved hidden vector of a restored row, without running the model."""

    SOURCES = (S.LANE_SLOTS, S.LIVE_ROWS, S.GRAMMAR_MASK)

    def __init__(self, storage: Storage, model: nn.Module) -> None:
        super().__init__(storage, model, 1, 1, self.SOURCES)

    def forward(self) -> tuple[Tensor]:
        logits = self.served.logits(flare.gather_rows(self.saved_hidden, self.upload[S.LIVE_ROWS]))
        self.sample(logits, self.upload[S.LANE_SLOTS], self.upload[S.LANE_SLOTS])
        return (logits,)
