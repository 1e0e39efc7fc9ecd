"""Capacities: the bounds within which a core serves. Everything outside is refused at admission."""

from __future__ import annotations

from pydantic import Field, model_validator

from flare.contract.base import ContractModel


class SpeculativeShape(ContractModel):
    """A complete speculative program's shape: `requests` B, proposal `depth` D, per-request target
    `width` W including the pending token, aggregate target `rows` P (B x W when rectangular)."""

    requests: int = Field(gt=0)
    depth: int = Field(ge=0)
    width: int = Field(gt=0)
    rows: int = Field(gt=0)

    @model_validator(mode="after")
    def _possible(self) -> SpeculativeShape:
        if not self.requests <= self.rows <= self.requests * self.width:
            raise ValueError(f"speculative rows {self.rows} outside B..B*W of {self}")
        if self.depth + 1 < self.width:
            raise ValueError(f"speculative width {self.width} exceeds depth {self.depth} + 1")
        return self


class Capacities(ContractModel):
    """Bounds of a core.

    `concurrency` request slots; `context` tokens per request, prompt and output together; `pages` and
    `snapshot_rows` in the pools, when whoever loads the core chooses no other counts; `page_range` and
    `snapshot_row_range` are the most that can be chosen, because programs address no more (None: as many as
    the pools have). `decode_lanes` and `prefill_tokens` list the prepared program sizes, ascending.
    `verification_width` is the rows one slot owns (1 without speculation). `completion_tokens` is C of a
    completion record. `image_patches` lists the patch capacities of vision programs, ascending;
    `image_features` rows hold the features of all images of one request.
    """

    concurrency: int = Field(gt=0)
    context: int = Field(gt=0)
    pages: int = Field(gt=0)
    snapshot_rows: int = Field(ge=0)
    decode_lanes: tuple[int, ...] = Field(min_length=1)
    prefill_tokens: tuple[int, ...] = Field(min_length=1)
    completion_tokens: int = Field(default=8, gt=0)
    stop_token_ids: int = Field(gt=0)
    logit_bias: int = Field(ge=0)
    logprobs: int = Field(ge=0)
    verification_width: int = Field(default=1, gt=0)
    speculative: tuple[SpeculativeShape, ...] = ()
    image_patches: tuple[int, ...] = ()
    image_features: int = Field(default=0, ge=0)
    page_range: int | None = Field(default=None, gt=0)
    snapshot_row_range: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _possible(self) -> Capacities:
        for name in ("decode_lanes", "prefill_tokens", "image_patches"):
            sizes = getattr(self, name)
            if list(sizes) != sorted(set(sizes)) or any(size <= 0 for size in sizes):
                raise ValueError(f"{name} must be positive and ascending, got {sizes}")
        for count, most in ((self.pages, self.page_range), (self.snapshot_rows, self.snapshot_row_range)):
            if most is not None and most < count:
                raise ValueError(f"{count} blocks where programs address {most}")
        if self.decode_lanes[-1] < self.concurrency:
            raise ValueError(
                f"largest decode program has {self.decode_lanes[-1]} lanes for concurrency {self.concurrency}"
            )
        return self

    @property
    def rows(self) -> int:
        """Rows in the pool: the null row 0, `verification_width` per slot, then the snapshots."""
        return self.live_row(self.concurrency) + self.snapshot_rows

    @property
    def addressable_pages(self) -> int:
        """Pages that programs can address."""
        return self.pages if self.page_range is None else self.page_range

    @property
    def addressable_rows(self) -> int:
        """Rows that programs can address, in the order of `rows`."""
        snapshots = self.snapshot_rows if self.snapshot_row_range is None else self.snapshot_row_range
        return self.live_row(self.concurrency) + snapshots

    def live_row(self, slot: int) -> int:
        """First row of a request slot."""
        return 1 + slot * self.verification_width
