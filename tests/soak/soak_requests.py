"""Bodies of good requests, and bytes of bad ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]
TEXT = "Remember the list of things that were said before, then say what follows from it. "


def _text(rng: random.Random, tokens: int, per_token: float) -> str:
    """Text of about `tokens` tokens, at `per_token` characters each, that begins like no other."""
    characters = max(8, int(tokens * per_token))
    salted = f"{rng.getrandbits(40):x} " + TEXT * (1 + characters // len(TEXT))
    return salted[:characters]


class Writer:
    """Writes requests for a server with a context of `context` tokens, `per_token` characters each."""

    def __init__(self, model: str, context: int, per_token: float) -> None:
        self.model = model
        self.context = context
        self.per_token = per_token

    def chat(self, rng: random.Random, share: float = 0.1, output: int = 24, **more: Any) -> Body:
        """A chat whose prompt takes about `share` of the context."""
        content = _text(rng, int(share * self.context), self.per_token)
        messages = [{"role": "user", "content": content}]
        return {"model": self.model, "messages": messages, "max_tokens": output, **more}

    def endless(self, rng: random.Random, **more: Any) -> Body:
        """A chat that only its context ends."""
        body = self.chat(rng, ignore_eos=True, **more)
        del body["max_tokens"]
        return body

    def long(self, rng: random.Random) -> Body:
        """Most of the context is prompt."""
        return self.chat(rng, share=0.7, output=max(4, self.context // 16), stream=rng.random() < 0.5)

    def choices(self, rng: random.Random) -> Body:
        """Several choices, streamed or not."""
        return self.chat(rng, n=rng.randint(2, 4), stream=rng.random() < 0.5)

    def stops(self, rng: random.Random) -> Body:
        """Stop strings, some of which will be drawn."""
        return self.chat(rng, stop=["e", "the", "\n\n"][: rng.randint(1, 3)], stream=rng.random() < 0.5)

    def logprobs(self, rng: random.Random) -> Body:
        """Log-probabilities with alternatives."""
        return self.chat(rng, logprobs=True, top_logprobs=rng.randint(0, 5), stream=rng.random() < 0.5)

    def penalties(self, rng: random.Random) -> Body:
        """Every sampling parameter."""
        return self.chat(
            rng,
            temperature=rng.uniform(0.5, 1.2),
            top_k=rng.randint(1, 40),
            top_p=rng.uniform(0.5, 1.0),
            min_p=0.02,
            repetition_penalty=1.1,
            presence_penalty=0.5,
            frequency_penalty=0.5,
            logit_bias={"5": -100, "7": 2},
            seed=rng.getrandbits(32),
            min_tokens=4,
        )

    def completion(self, rng: random.Random) -> Body:
        """Texts or token ids, several at once, echoed or with log-probabilities."""
        prompt: Any = [_text(rng, self.context // 16, self.per_token) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            prompt = [rng.randint(3, 200) for _ in range(20)]
        extra = rng.choice([{"echo": True}, {"logprobs": 3}, {"n": 2}, {}])
        return {"prompt": prompt, "max_tokens": 12, "stream": rng.random() < 0.5, **extra}


def post(path: str, data: bytes) -> bytes:
    """A request on a connection of its own."""
    lines = (
        f"POST {path} HTTP/1.1",
        "host: soak",
        "content-type: application/json",
        f"content-length: {len(data)}",
        "connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + data


def _chat(**fields: Any) -> bytes:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, **fields}
    return post("/v1/chat/completions", json.dumps(body).encode())


# Every one gets a status from 400 to 499.
BAD: dict[str, Callable[[Writer], bytes]] = {
    "half a JSON": lambda writer: post("/v1/chat/completions", b'{"messages": ['),
    "no object": lambda writer: post("/v1/chat/completions", b"[]"),
    "not UTF-8": lambda writer: post("/v1/completions", b'{"prompt": "\xff\xfe"}'),
    "deep": lambda writer: post("/v1/completions", b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "no messages": lambda writer: _chat(messages=[]),
    "wrong type": lambda writer: _chat(max_tokens="2"),
    "impossible value": lambda writer: _chat(temperature=-1),
    "unknown model": lambda writer: _chat(model="no such model"),
    "too many choices": lambda writer: _chat(n=100_000),
    "too long": lambda writer: _chat(messages=[{"role": "user", "content": "long " * writer.context * 2}]),
    "too much output": lambda writer: _chat(max_tokens=writer.context + 1),
    "foreign token": lambda writer: post("/v1/completions", b'{"prompt": [99999999]}'),
    "unknown path": lambda writer: post("/v1/nothing", b"{}"),
    "wrong method": lambda writer: b"PUT /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "no HTTP": lambda writer: b"\x16\x03\x01 hello\r\n\r\n",
}
