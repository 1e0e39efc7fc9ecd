"""State maintenance programs: start a request, restore a snapshot, take a snapshot."""

from __future__ import annotations

import torch

from flare.contract import ValueSource
from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.serving.module import ProgramModule
from flare_components.serving.storage import Storage

S = ValueSource
flare = torch.ops.flare

# The value source that uploads each parameter.
_SOURCES = {
    "stop_ids": S.STOP_TOKEN_IDS,
    "bias_ids": S.LOGIT_BIAS_IDS,
    "bias_values": S.LOGIT_BIAS_VALUES,
}
_PARAMETERS = tuple(_SOURCES.get(name) or ValueSource(name) for name in PARAMETERS)


class StartProgram(ProgramModule):
    """A slot begins a request: parameters, page table, penalty counts of its whole history (once), and a
    live row equal to the null row."""

    SOURCES = (
        S.LANE_SLOTS,
        S.EPOCHS,
        S.LIVE_ROWS,
        S.SOURCE_ROW,
        S.PAGE_TABLE_ROW,
        S.PROMPT_LENGTH,
        S.OUTPUT_LENGTH,
        *_PARAMETERS,
        S.PROMPT_TOKENS,
    )

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.shape(1, 1).bind(self.SOURCES))
        self.request = self.place_all("state", storage.request)
        self.place("row_blocks", storage.row_blocks)

    def forward(self) -> None:
        u, r = self.upload, self.request
        flare.set_page_table(r["page_table"], u[S.LANE_SLOTS], u[S.PAGE_TABLE_ROW])
        flare.copy_blocks(self.row_blocks, u[S.SOURCE_ROW], u[S.LIVE_ROWS])
        flare.start_request(
            u[S.LANE_SLOTS],
            u[S.EPOCHS],
            u[S.PROMPT_TOKENS],
            u[S.PROMPT_LENGTH],
            *(u[source] for source in _PARAMETERS),
            *(r[name] for name in (*PARAMETERS, *PROGRESS)),
        )
        flare.count_outputs(
            u[S.LANE_SLOTS],
            u[S.PROMPT_TOKENS],
            u[S.PROMPT_LENGTH],
            u[S.OUTPUT_LENGTH],
            r["prompt_counts"],
            r["output_counts"],
        )


class TransferProgram(ProgramModule):
    """Copies a row and, when the endpoint is inside a page, its tail page. Source and destination are
    arbitrary rows and pages, so the same program snapshots and restores; with a live slot given, the
    slot's consumed count becomes that of the endpoint."""

    SOURCES = (
        S.LANE_SLOTS,
        S.CONSUMED_COUNTS,
        S.SOURCE_ROW,
        S.DESTINATION_ROW,
        S.SOURCE_PAGE,
        S.DESTINATION_PAGE,
    )

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.shape(1, 1).bind(self.SOURCES))
        self.place("consumed", storage.request["consumed"])
        self.place("row_blocks", storage.row_blocks)
        self.place("page_blocks", storage.page_blocks)

    def forward(self) -> None:
        u = self.upload
        flare.copy_blocks(self.row_blocks, u[S.SOURCE_ROW], u[S.DESTINATION_ROW])
        flare.copy_blocks(self.page_blocks, u[S.SOURCE_PAGE], u[S.DESTINATION_PAGE])
        flare.scatter_rows(self.consumed, u[S.LANE_SLOTS], u[S.CONSUMED_COUNTS])
