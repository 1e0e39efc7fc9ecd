"""What the hash model must say, computed without pages, rows, slots or programs."""

from __future__ import annotations

from collections.abc import Sequence

from flare.device.sim_ops import counted, drawn_token, mix, signed
from flare.engine.packing import continued_seed

_MASK = (1 << 64) - 1


def oracle(
    prompt: Sequence[int],
    seed: int,
    max_tokens: int,
    stops: Sequence[int] = (),
    min_tokens: int = 0,
    vocab_size: int = 97,
    preempted: Sequence[int] = (),
) -> list[int]:
    """The output of one request. `max_tokens` is bounded by the context already. It was preempted after
    each number of output tokens in `preempted`: its draws went on under another seed."""
    counts = sum(counted(token, output=False) for token in prompt)
    key, start = seed, 0
    output: list[int] = []
    total = state = count = 0
    pending = list(prompt)
    while True:
        for token in pending:
            total += mix(mix(token * 0x10001 + count) ^ count)
            state, count = mix(state ^ token), count + 1
        hidden = mix((total ^ state ^ mix(count)) & _MASK)
        if len(output) in preempted:
            key, start = continued_seed(seed, len(output)), len(output)
        barred = set(stops) if len(output) < min_tokens else set()
        draw = len(output) - start
        token = drawn_token(hidden, signed(counts), signed(key), draw, barred, vocab_size)
        counts += counted(token, output=True)
        output.append(token)
        if token in stops or len(output) >= max_tokens:
            return output
        pending = [token]
