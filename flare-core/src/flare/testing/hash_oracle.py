"""What the hash model must say, computed without pages, rows, slots or programs."""

from __future__ import annotations

from collections.abc import Sequence

from flare.device.sim_ops import drawn_token, mix, signed

_MASK = (1 << 64) - 1


def oracle(
    prompt: Sequence[int],
    seed: int,
    max_tokens: int,
    stops: Sequence[int] = (),
    min_tokens: int = 0,
    vocab_size: int = 97,
) -> list[int]:
    """The output of one request. `max_tokens` is bounded by the context already."""
    prompt_hash = 0
    for token in prompt:
        prompt_hash = mix(prompt_hash ^ token)
    output: list[int] = []
    total = state = count = 0
    pending = list(prompt)
    while True:
        for token in pending:
            total += mix(mix(token * 0x10001 + count) ^ count)
            state, count = mix(state ^ token), count + 1
        hidden = mix((total ^ state ^ mix(count)) & _MASK)
        barred = set(stops) if len(output) < min_tokens else set()
        token = drawn_token(hidden, signed(prompt_hash), signed(seed), len(output), barred, vocab_size)
        output.append(token)
        if token in stops or len(output) >= max_tokens:
            return output
        pending = [token]
