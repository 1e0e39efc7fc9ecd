"""What scenarios share: sizes that fit the server, and the figures of a first token."""

from __future__ import annotations

from flare.bench.errors import BenchmarkError
from flare.bench.recorder import Recorder
from flare.bench.stream import Completion
from flare.bench.target import Target

_MARGIN = 0.9  # of the context: lengths of prompts are known roughly


def fit(target: Target, recorder: Recorder, tokens: int, more: int) -> int:
    """`tokens` of a prompt, or what the server's context leaves beside `more` tokens; a note tells when it is
    less. Raises: BenchmarkError when hardly anything is left."""
    if target.context is None:
        return tokens
    room = int(target.context * _MARGIN) - more
    if room >= tokens:
        return tokens
    if room < min(tokens, target.lengths.overhead + 16 * target.lengths.per_word):
        raise BenchmarkError(
            f"not measured: the server's context of {target.context} tokens leaves no prompt beside "
            f"the other {more}; lower --turns, --append-tokens or --output-tokens"
        )
    recorder.note(f"{room} prompt tokens instead of {tokens}: the server's context is {target.context}")
    return room


def add_first_token(recorder: Recorder, case: str, answer: Completion) -> None:
    """Time to the first token, the prompt's length, and how much of it the server had in its cache."""
    recorder.add(case, "first token", answer.first_token_ms, "ms", "lower")
    recorder.add(case, "prompt", answer.prompt_tokens, "tokens")
    if answer.cached_tokens is None:
        recorder.note("cached tokens: not reported by this server")
    else:
        recorder.add(case, "cached", answer.cached_tokens, "tokens")


def check_fresh(answer: Completion, target: Target) -> None:
    """Raises: BenchmarkError when a cache answered for more than the template of a prompt that was new."""
    if (answer.cached_tokens or 0) > target.lengths.overhead + 1:
        raise BenchmarkError(f"{answer.cached_tokens} tokens of a fresh prompt were cached")


def check_drawn(answer: Completion, tokens: int) -> None:
    """Raises: BenchmarkError when a stream ended early, so that it did not run beside the others."""
    if answer.completion_tokens != tokens:
        raise BenchmarkError(
            f"asked for {tokens} tokens, the server drew {answer.completion_tokens}; does it know ignore_eos?"
        )
