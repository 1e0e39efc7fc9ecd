"""What is measured, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Endpoint(StrEnum):
    """Which API carries the prompts."""

    CHAT = "chat"
    COMPLETIONS = "completions"


# Sampling as model cards recommend it, not greedy: servers have faster paths for greedy decoding.
DEFAULT_BODY: dict[str, Any] = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "ignore_eos": True}


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Bounds and sizes; lengths are in tokens.

    A scenario repeats its cases up to `requests` times and begins no new repetition after `duration` seconds;
    every case runs once whatever it takes. `body` is merged into every request. A server that is silent for
    `timeout` seconds has failed the request.
    """

    requests: int = 5
    duration: float = 15.0
    timeout: float = 120.0
    endpoint: Endpoint = Endpoint.CHAT
    body: dict[str, Any] = field(default_factory=lambda: dict(DEFAULT_BODY))
    prompt_tokens: tuple[int, ...] = (128, 512, 1024)  # cold; the longest is the prefill of mixed
    concurrency: tuple[int, ...] = (1, 2, 4)  # streams of decode
    decode_prompt_tokens: int = 64
    output_tokens: int = 64  # of a decoding stream
    prefix_tokens: int = 512  # what append, branch, extend and repeat begin with
    turns: int = 4
    append_tokens: int = 128  # of a tool result, a branch and an extension
    answer_tokens: int = 8  # where only the first token is timed
    branches: int = 4
    running_streams: int = 2  # beside the long prefill of mixed
