"""What loading took, as lines of a log."""

from __future__ import annotations

from flare.engine.messages import Ready

_HOST = "pinned_host"


def load_lines(ready: Ready) -> tuple[str, ...]:
    """The device's memory by purpose, the largest first, and when each part of loading ran."""
    device = {name: nbytes for name, nbytes in ready.ledger.items() if name != _HOST and nbytes}
    largest = sorted(device, key=device.__getitem__, reverse=True)
    lines = [
        f"memory {_mebibytes(sum(device.values()))}: "
        + ", ".join(f"{name} {_mebibytes(device[name])}" for name in largest)
        + f"; {ready.cache_tokens} tokens in pages, {ready.snapshot_rows} snapshot rows"
    ]
    if ready.load_spans:
        begun = sorted(ready.load_spans.items(), key=lambda item: item[1])
        parts = ", ".join(f"{name} {begin:.0f}-{end:.0f}" for name, (begin, end) in begun)
        lines.append(f"loading, from and to milliseconds: {parts}")
    return tuple(lines)


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
