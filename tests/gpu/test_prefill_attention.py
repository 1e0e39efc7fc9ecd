"""Prefill attention against float64: borders of tiles, page sizes, grouped heads, split contexts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from attention_reference import operands, reference  # noqa: E402
from op_device import moved, poison  # noqa: E402

import flare_components.ops  # noqa: E402, F401

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

# Queries and context of each lane. Tiles are of 64 and 128 pairs of a query and a head, tiles of keys of
# 64 and 128 tokens.
LANES = {
    "cold": [(128, 128)],
    "cold, one more": [(129, 129)],
    "at a border of keys": [(64, 192), (43, 64), (86, 128)],
    "past a border": [(64, 193), (43, 65), (86, 129)],
    "ragged, idle lanes between": [(43, 64), (0, 0), (1, 500), (0, 0), (86, 90), (300, 301)],
    "long past": [(200, 4107)],
    "a tail": [(11, 4107)],
    "lanes of a few rows": [(5, 1000), (5, 77), (3, 3), (5, 640)],
}


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "page"),
    [
        (24, 8, 128, 64),
        (8, 1, 128, 16),
        (4, 4, 64, 128),
        (10, 2, 128, 32),
        (7, 1, 64, 256),
        (12, 2, 128, 8),
        (6, 2, 80, 16),
        (4, 2, 256, 64),
    ],
)
def test_agrees_with_float64(
    lanes: list[tuple[int, int]], heads: int, kv_heads: int, width: int, page: int
) -> None:
    generator = torch.Generator().manual_seed(len(lanes) + heads + page)
    shape = {"heads": heads, "kv_heads": kv_heads, "width": width, "page": page}
    given = moved(operands(generator, lanes, padding=3, **shape), "cuda")
    poison()
    result = torch.ops.flare.paged_attention(*given)
    expected = reference(*given)
    assert (result[-3:] == 0).all()
    torch.testing.assert_close(result.double(), expected, atol=0.02, rtol=0.02)
    assert (result.double() - expected).norm() < 4e-3 * expected.norm()


def test_the_bits_are_the_same_every_time_and_in_any_company() -> None:
    """Warps that hand tiles to each other would show a race here."""
    generator = torch.Generator().manual_seed(1)
    shape = {"heads": 24, "kv_heads": 8, "width": 128, "page": 64}
    q, keys, values, table, starts, contexts, scale = moved(
        operands(generator, [(300, 3000), (212, 1500)], **shape), "cuda"
    )
    first = torch.ops.flare.paged_attention(q, keys, values, table, starts, contexts, scale)
    for _ in range(20):
        again = torch.ops.flare.paged_attention(q, keys, values, table, starts, contexts, scale)
        assert torch.equal(first, again)
    contexts[1] = 0
    alone = torch.ops.flare.paged_attention(q, keys, values, table, starts, contexts, scale)
    assert torch.equal(alone[:300], first[:300])
    assert (alone[300:] == 0).all()
