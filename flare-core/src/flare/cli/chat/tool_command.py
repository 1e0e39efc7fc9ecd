"""A command that answers calls of tools."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from flare.errors import RequestError

_MOST_BYTES = 1 << 20  # far more than a model reads


class ToolCommand:
    """`line` is a command with its arguments, split as a shell does, but run without one. It gets the tool's
    name in `FLARE_TOOL_NAME` and the arguments as JSON on standard input, and has `seconds` for each call.
    Raises RequestError when there is no such command."""

    def __init__(self, line: str, seconds: float) -> None:
        try:
            self._command = shlex.split(line)
        except ValueError as error:
            raise RequestError(f"--tool-command {line!r}: {error}", field="tool_command") from error
        if not self._command or shutil.which(self._command[0]) is None:
            raise RequestError(f"--tool-command {line!r}: there is no such command", field="tool_command")
        self._line = line
        self._seconds = seconds

    def __str__(self) -> str:
        return self._line

    def run(self, name: str, arguments: str) -> str:
        """What it wrote to standard output, without line ends behind it; how it ended, unless well, is added
        in brackets. Raises RequestError when it cannot be started."""
        deadline = time.monotonic() + self._seconds
        with tempfile.TemporaryFile() as stdin:  # a pipe would wait for a command that does not read
            stdin.write(arguments.encode())
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "FLARE_TOOL_NAME": name},
                    start_new_session=True,  # its children end with it
                )
            except (OSError, ValueError) as error:
                raise RequestError(f"--tool-command cannot be started: {error}") from error
        try:
            written, ended = _written(process, deadline)
        except BaseException:  # an interrupt ends the command too
            _kill(process)
            raise
        finally:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        text = written[:_MOST_BYTES].decode(errors="replace").rstrip("\n")
        if len(written) > _MOST_BYTES:
            remark = f"[cut behind {_MOST_BYTES} bytes]"
        elif not ended:
            remark = f"[stopped after {self._seconds:g} s]"
        elif process.returncode:
            remark = f"[exit status {process.returncode}]"
        else:
            return text
        return f"{text}\n{remark}" if text else remark


def _written(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """What it writes until it ends, and whether it did in time."""
    found: list[bytes] = []
    assert process.stdout is not None
    read = process.stdout.read
    reader = threading.Thread(target=lambda: found.append(read(_MOST_BYTES + 1)), daemon=True)
    reader.start()
    reader.join(max(0.0, deadline - time.monotonic()))
    ended = not reader.is_alive() and len(found[0]) <= _MOST_BYTES
    if ended:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            ended = False
    if not ended:
        _kill(process)
        reader.join()
    return found[0], ended


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The command and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
