"""What the log says of loading."""

from __future__ import annotations

from flare.engine.load_lines import load_lines
from flare.engine.messages import Ready

MIB = 1 << 20


def ready(**fields: object) -> Ready:
    return Ready(context=64, concurrency=1, ready_seconds=1.0, **fields)  # type: ignore[arg-type]


def test_memory_by_purpose_and_the_parts_of_loading() -> None:
    found = load_lines(
        ready(
            ledger={"rows": 0, "weights": 3 * MIB, "context": 500 * MIB, "pinned_host": 9 * MIB},
            cache_tokens=4096,
            snapshot_rows=8,
            load_spans={"contents": (0.0, 900.4), "driver": (0.2, 110.0), "total": (0.0, 901.0)},
        )
    )
    assert found == (
        "memory 503.0 MiB: context 500.0 MiB, weights 3.0 MiB; 4096 tokens in pages, 8 snapshot rows",
        "loading, from and to milliseconds: contents 0-900, total 0-901, driver 0-110",
    )


def test_a_device_that_does_not_say_when() -> None:
    assert len(load_lines(ready(ledger={"pages": MIB}))) == 1
