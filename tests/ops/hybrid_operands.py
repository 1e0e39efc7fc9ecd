"""One call of every operator that hybrid models use beside those of a dense decoder."""

from __future__ import annotations

from typing import Any

import torch
from ragged import Ragged


def hybrid_operands() -> dict[str, tuple[Any, ...]]:
    lanes = Ragged([(1, 5), (6, 3)])
    lengths = lanes.query_start, lanes.context_lens, lanes.live_rows
    owners = lanes.query_start, lanes.live_rows
    rows, streams = lanes.rows, lanes.packed(4 * 8)
    pages, table = lanes.paged(8, 2, 2, 16)
    groups, _ = lanes.paged(2, 16)
    latents, _ = lanes.paged(8, 16)
    paged = table, lanes.query_start, lanes.context_lens
    tables = torch.randn(rows, 8), torch.randn(rows, 8)
    logits = torch.randn(rows, 7)[:, :6]
    connection = torch.randn(24, 32), torch.randn(24), torch.randn(3), 1e-6, 1e-6, 20
    return {
        "short_conv": (lanes.packed(24), torch.randn(24, 1, 4), lanes.state(24, 9), *owners, 3),
        "gated_delta_rule": (
            lanes.packed(2 * 2 * 8 + 4 * 8).bfloat16(),
            *torch.randn(rows, 8).bfloat16().split([4, 4], 1),
            *torch.randn(2, 4).bfloat16(),
            lanes.state(4, 8, 8),
            *owners,
        ),
        "gated_delta_rule of channels": (
            lanes.packed(2 * 2 * 8 + 4 * 8),
            lanes.packed(32),
            lanes.packed(4),
            *(torch.randn(4), torch.randn(32)),
            lanes.state(4, 8, 8),
            *owners,
            -5.0,
        ),
        "short_conv in FP32": (
            lanes.packed(24).bfloat16(),
            torch.randn(24, 1, 4),
            lanes.state(24, 3, dtype=torch.bfloat16),
            *owners,
            1,
        ),
        "ngram_rows": (
            torch.zeros(rows, dtype=torch.int32),
            torch.zeros(9, 2, dtype=torch.int32),
            *lengths,
            *(torch.ones(2, count, dtype=torch.int64) for count in (3, 4, 4)),
            7,
        ),
        "group_rms_norm": (streams[:, :16], torch.randn(16), 8, 1e-6, 1.0),
        "inject_group_rms_norm": (streams, torch.randn(rows, 8), logits[:, :4], torch.randn(32), 1e-6, 1.0),
        "gated_rms_norm": (streams, streams, torch.randn(32), 1e-6, "silu"),
        "gated_rms_norm in FP32": (streams.bfloat16(), streams.bfloat16(), torch.randn(32), 1e-6, "sigmoid"),
        "collapse_streams": (streams, *connection),
        "expand_streams": (
            streams.clone(),
            torch.randn(rows, 8),
            torch.rand(rows, 4),
            torch.rand(rows, 4, 4),
        ),
        "expand_collapse_streams": (
            streams.bfloat16(),
            torch.randn(rows, 8).bfloat16(),
            torch.rand(rows, 4),
            torch.rand(rows, 4, 4),
            *connection,
        ),
        "stream_mean": (streams, 4),
        "scaled_silu": (streams[:, :5], 0.25),
        "gated_stream_mean": (streams, streams, 4),
        "gated_streams": (streams, streams, streams[:, :8]),
        "rotary_tables": (torch.zeros(3, rows).int(), torch.ones(4), [2, 1, 1], 1.0, torch.bfloat16),
        "norm_rotary": (torch.randn(rows, 3, 32)[..., :16], torch.randn(16), *tables, 1e-6, 1.0),
        "group_starts": (torch.zeros(3, rows).int(), torch.zeros(9, 3, dtype=torch.int64), *lengths, 4),
        "pool_groups": (
            lanes.packed(16),
            *tables,
            torch.randn(16),
            lanes.state(4, 16),
            groups,
            *paged,
            lanes.live_rows,
            4,
            1e-6,
            1.0,
        ),
        "pool_gated_groups": (
            *lanes.packed(32).split([16, 16], 1),
            torch.randn(4, 16),
            lanes.state(4, 2, 16),
            groups,
            *paged,
            lanes.live_rows,
        ),
        "select_groups": (lanes.packed(3, 16), groups, *paged, 4, 1),
        "select_groups with weights": (lanes.packed(3, 16), groups, *paged, 4, 1, lanes.packed(3)),
        "paged_write": (lanes.packed(16), latents, torch.arange(rows) - 5),
        "latent_attention": (
            lanes.packed(4, 8),
            torch.randn(4, 8, 16),
            torch.randn(4, 6, 16),
            latents,
            torch.zeros(rows, 1, dtype=torch.int32),
            *paged,
            4,
            0.25,
        ),
        "selected_attention": (
            lanes.packed(4, 16),
            pages[:, :, 0],
            pages[:, :, 1],
            torch.zeros(rows, 1, dtype=torch.int32),
            *paged,
            4,
            0.25,
        ),
        "route_softmax": (logits, torch.zeros(rows, dtype=torch.int32), 2),
        "route_sigmoid": (logits, torch.zeros(6), torch.zeros(rows, dtype=torch.int32), 2, 2.5),
        "routed_experts": (
            torch.randn(rows, 8),
            torch.rand(rows, 2),
            torch.zeros(rows, 2, dtype=torch.int32),
            torch.randn(6, 10, 8),
            torch.randn(6, 8, 5),
        ),
    }
