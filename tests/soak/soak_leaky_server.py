"""A server that keeps something of every request: `python soak_leaky_server.py PORT_FILE KEPT...`, where KEPT
are of `memory`, `descriptors`, `threads`, `pages`, `requests`, `files`."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

KEPT = set(sys.argv[2:])
KIB = 128
held: list[object] = []
never = threading.Event()


def keep() -> None:
    if "memory" in KEPT:
        held.append(os.urandom(KIB << 10))
    if "descriptors" in KEPT:
        held.append(open(os.devnull))  # noqa: SIM115
    if "threads" in KEPT:
        threading.Thread(target=never.wait, daemon=True).start()
    if "files" in KEPT:
        tempfile.mkdtemp()


class Handler(BaseHTTPRequestHandler):
    requests = 0

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        pages = 64 - (Handler.requests if "pages" in KEPT else 0)
        running = Handler.requests if "requests" in KEPT else 0
        self.send(
            f"flare:free_pages {pages}\nflare:free_rows 2\nflare:free_slots 4\n"
            f"flare:num_requests_running {running}\nflare:num_requests_waiting 0\n"
            "flare:http_requests_open 1\n"
        )

    def do_POST(self) -> None:
        Handler.requests += 1
        keep()
        self.send("")

    def send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


server = HTTPServer(("127.0.0.1", 0), Handler)
partial = Path(sys.argv[1] + ".partial")
partial.write_text(str(server.server_address[1]))
partial.rename(sys.argv[1])
server.serve_forever()
