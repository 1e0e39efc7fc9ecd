"""A server that speaks just enough of OpenAI's completions: it streams words at a fixed pace.

As a program: `python fake_openai.py PORT SECONDS PID_FILE` listens after SECONDS, with a child process that
ignores SIGTERM and whose id it writes to PID_FILE.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DEAF_CHILD = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


@dataclass
class Behaviour:
    """`tokens_per_word` of prompts; `joined` tokens go into one event; `fault` breaks answers."""

    first_seconds: float = 0.0
    token_seconds: float = 0.01
    tokens_per_word: float = 1.0
    joined: int = 1
    cached_tokens: int | None = None
    fault: str = ""


@dataclass
class Seen:
    """Bodies of all requests, and how many streams were open at once at most."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0


class FakeServer:
    """Use as a context; change `behaviour` at any time."""

    def __init__(self, port: int = 0) -> None:
        self.behaviour = Behaviour()
        self.seen = Seen()
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.01)

    def __enter__(self) -> FakeServer:
        self._thread = threading.Thread(target=self.serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            else:
                self.answer(200, {"data": [{"id": "fake-model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with fake.lock:
                fake.seen.bodies.append(body)
                fake.seen.open += 1
                fake.seen.most_open = max(fake.seen.most_open, fake.seen.open)
            if fake.behaviour.fault == "status":
                self.answer(503, {"error": {"message": "the engine died"}})
            else:
                self.stream(body, fake.behaviour)
            with fake.lock:
                fake.seen.open -= 1

        def answer(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, body: dict[str, Any], behaviour: Behaviour) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            time.sleep(behaviour.first_seconds)
            tokens = body["max_tokens"] - (behaviour.fault == "short")
            for number in range(0, tokens, behaviour.joined):
                if number:
                    time.sleep(behaviour.token_seconds)
                text = "" if behaviour.fault == "silent" else "word "
                self.event({"choices": [{"text": text, "finish_reason": None}]})
                if behaviour.fault == "error":
                    self.event({"error": {"message": "lost the device"}})
            self.event({"choices": [{"text": "", "finish_reason": "length"}]})
            if behaviour.fault != "no usage":
                words = len(body["prompt"].split())
                usage: dict[str, Any] = {
                    "prompt_tokens": round(words * behaviour.tokens_per_word),
                    "completion_tokens": tokens,
                }
                if behaviour.cached_tokens is not None:
                    usage["prompt_tokens_details"] = {"cached_tokens": behaviour.cached_tokens}
                self.event({"choices": [], "usage": usage})
            if behaviour.fault != "cut":
                self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")

        def event(self, content: dict[str, Any]) -> None:
            self.chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    return Handler


def main() -> None:
    port, seconds, pid_file = sys.argv[1:]
    print("loading", flush=True)
    child = subprocess.Popen([sys.executable, "-c", DEAF_CHILD], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    Path(pid_file).write_text(str(child.pid))
    time.sleep(float(seconds))
    FakeServer(int(port)).serve()


if __name__ == "__main__":
    main()
