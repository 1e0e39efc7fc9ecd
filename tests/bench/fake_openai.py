"""A server that speaks just enough of the OpenAI API: it streams words at a fixed pace.

As a program: `python fake_openai.py PORT SECONDS PID_FILE` listens after SECONDS, with a child process that
ignores SIGTERM and whose id it writes to PID_FILE.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MESSAGE_TOKENS = 4  # that the template puts around each message

DEAF_CHILD = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


@dataclass
class Behaviour:
    """`tokens_per_word` of prompts; `prompt_token_seconds` for each that is not cached, in which no stream
    draws; `joined` tokens go into one event; `caches` prefixes of earlier prompts; `fault` breaks answers
    from the `faulty_from`-th request on."""

    first_seconds: float = 0.0
    token_seconds: float = 0.01
    prompt_token_seconds: float = 0.0
    tokens_per_word: float = 1.0
    joined: int = 1
    caches: bool = False
    cached_tokens: int | None = None
    continuous_usage: bool = False
    context: int | None = None
    metrics: str | None = None
    steps: Callable[[int, int], object] | None = None  # of a step number and the requests so far
    version: str | None = None
    fault: str = ""
    faulty_from: int = 0


@dataclass
class Seen:
    """Bodies of all requests, and how many streams were open at once at most."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    prompts: list[list[str]] = field(default_factory=list)


class FakeServer:
    """Use as a context; change `behaviour` at any time."""

    def __init__(self, port: int = 0) -> None:
        self.behaviour = Behaviour()
        self.seen = Seen()
        self.lock = threading.Lock()
        self.device = threading.Lock()  # held by a prefill
        self.dead = False
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.01)

    def die(self) -> None:
        """Nothing is answered any more. Called by a handler."""
        self.dead = True
        self._http.shutdown()
        self._http.socket.close()

    def __enter__(self) -> FakeServer:
        self._thread = threading.Thread(target=self.serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def cached_words(self, words: list[str]) -> int:
        """Words of the longest beginning that an earlier prompt shares; `words` join those prompts."""
        with self.lock:
            longest = max((_shared(words, known) for known in self.seen.prompts), default=0)
            self.seen.prompts.append(words)
        return longest


def _shared(one: list[str], other: list[str]) -> int:
    for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return number
    return min(len(one), len(other))


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def hang_up(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def do_GET(self) -> None:
            if fake.dead:
                self.hang_up()
                return
            behaviour = fake.behaviour
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            elif self.path == "/metrics" and behaviour.metrics is not None:
                self.send(200, behaviour.metrics.encode())
            elif self.path.startswith("/debug/steps?since=") and behaviour.steps is not None:
                since = int(self.path.rpartition("=")[2])
                self.answer(200, behaviour.steps(since, len(fake.seen.bodies)))
            elif self.path == "/version" and behaviour.version is not None:
                self.answer(200, {"version": behaviour.version})
            elif self.path == "/v1/models":
                self.answer(200, {"data": [{"id": "fake-model", "max_model_len": behaviour.context}]})
            else:
                self.answer(404, {"error": {"message": "not found"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with fake.lock:
                fake.seen.bodies.append(body)
                fake.seen.paths.append(self.path)
                fake.seen.open += 1
                fake.seen.most_open = max(fake.seen.most_open, fake.seen.open)
                faulty = len(fake.seen.bodies) > fake.behaviour.faulty_from
            fault = fake.behaviour.fault if faulty else ""
            try:
                if fake.dead:
                    self.hang_up()
                    return
                if fault == "status":
                    self.answer(503, {"error": {"message": "the engine died"}})
                else:
                    self.stream(body, fake.behaviour, fault)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                with fake.lock:
                    fake.seen.open -= 1

        def answer(self, status: int, content: dict[str, Any]) -> None:
            self.send(status, json.dumps(content).encode())

        def send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, body: dict[str, Any], behaviour: Behaviour, fault: str) -> None:
            chat = "messages" in body
            words, prompt_tokens = _prompt(body, behaviour)
            cached = behaviour.cached_tokens
            if behaviour.caches:
                cached = round(fake.cached_words(words) * behaviour.tokens_per_word)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            if chat:
                self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            time.sleep(behaviour.first_seconds)
            with fake.device:
                time.sleep(behaviour.prompt_token_seconds * (prompt_tokens - (cached or 0)))
            usage: dict[str, Any] = {"prompt_tokens": prompt_tokens, "completion_tokens": 0}
            if cached is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            tokens = body["max_tokens"] - (fault == "short")
            for number in range(0, tokens, behaviour.joined):
                if number:
                    time.sleep(behaviour.token_seconds)
                    with fake.device:
                        pass
                usage["completion_tokens"] = min(tokens, number + behaviour.joined)
                text = "" if fault == "silent" else "word "
                event: dict[str, Any] = {
                    "choices": [{"delta": {"content": text}} if chat else {"text": text}]
                }
                if behaviour.continuous_usage:
                    event["usage"] = usage
                self.event(event)
                if fault == "error":
                    self.event({"error": {"message": "lost the device"}})
                elif fault == "malformed":
                    self.chunk(b"data: {half an ev\n\n")
                elif fault == "foreign":
                    self.event({"answer": 42})
                elif fault == "dies":
                    fake.die()
                if fake.dead:
                    self.hang_up()
                    return
            self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
            if fault != "no usage":
                self.event({"choices": [], "usage": usage})
            if fault != "cut":
                self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")

        def event(self, content: dict[str, Any]) -> None:
            self.chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    return Handler


def _prompt(body: dict[str, Any], behaviour: Behaviour) -> tuple[list[str], int]:
    """Words of a request's prompt, and its tokens."""
    texts = [message["content"] for message in body.get("messages", ())] or [body["prompt"]]
    words = " ".join(texts).split()
    overhead = MESSAGE_TOKENS * len(body.get("messages", ()))
    return words, overhead + round(len(words) * behaviour.tokens_per_word)


def _end_with_parent() -> None:
    """A server whose starter was killed must not stay behind."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def main() -> None:
    port, seconds, pid_file = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    print("loading", flush=True)
    child = subprocess.Popen([sys.executable, "-c", DEAF_CHILD], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    Path(pid_file).write_text(str(child.pid))
    time.sleep(float(seconds))
    FakeServer(int(port)).serve()


if __name__ == "__main__":
    main()
