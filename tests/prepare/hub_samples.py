"""A hub on this machine: as much of its HTTP interface as fetching a snapshot needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(repository: str, files: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve `files` as the only commit of `repository`; gives the address and a log of GETs."""
    log: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            log.append(self.path)
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            api = f"/api/models/{repository}"
            path = self.path.partition("?")[0]
            if path == f"{api}/revision/main":
                self.reply(json.dumps({"id": repository, "sha": COMMIT, "siblings": []}).encode(), body)
            elif path == f"{api}/tree/{COMMIT}":
                self.reply(
                    json.dumps([describe(name, content) for name, content in files.items()]).encode(), body
                )
            elif path.startswith(f"/{repository}/resolve/{COMMIT}/"):
                self.reply(files[path.split(COMMIT + "/")[1]], body)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RevisionNotFound" if api in path else "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def reply(self, content: bytes, body: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def describe(name: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
