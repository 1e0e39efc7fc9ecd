"""`flare chat` on a terminal: editing, colours, lines that are written over, and interrupts."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from chatting import WEATHER_CALLS, written
from flare_command import FLARE
from live import LiveServer, chatter, say

COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal of `columns`; `seen` is all that it showed."""

    def __init__(self, *arguments: str, columns: int = 80, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        self._process = subprocess.Popen(
            [FLARE, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=plain | {"TERM": "xterm"} | environment,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""
        self._read = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def shown(self, seconds: float) -> str:
        """What comes next, or nothing."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        more = os.read(self._master, 65536).decode() if ready else ""
        self.seen += more
        return more

    def expect(self, text: str) -> str:
        """Everything up to `text`, from where the last one ended."""
        deadline = time.monotonic() + 60
        while (found := self.seen.find(text, self._read)) < 0:
            assert self.shown(deadline - time.monotonic()), f"{text!r} does not come behind {self.seen!r}"
        shown = self.seen[self._read : found]
        self._read = found + len(text)
        return shown

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """The exit status."""
        return self._process.wait(60)


def test_an_interrupt_stops_an_answer_and_keeps_what_came(agent: LiveServer) -> None:
    agent.engine.script = chatter(delay=0.002)
    with Terminal("chat", "--url", agent.url) as terminal:
        terminal.expect("> ")
        terminal.type("sing\r")
        terminal.expect("la la la")
        terminal.interrupt()
        terminal.expect("(stopped)")
        terminal.expect("> ")
        agent.wait(lambda: agent.engine.counters.cancelled == 1)
        agent.engine.script = say("fine")
        terminal.type("more\r")
        terminal.expect("fine\r\n")
        kept = agent.engine.counters.submissions[-1].prompt
        assert len(kept) > len(agent.engine.counters.submissions[0].prompt) + 9

        terminal.expect("> ")
        terminal.type("typed")
        terminal.expect("typed")
        terminal.interrupt()
        while "ends the chat" not in terminal.shown(1):
            terminal.interrupt()  # one is lost while the terminal is about to be read
        terminal.expect("> ")
        terminal.type("/undo\r")
        terminal.expect("taken back: more")
        terminal.expect("> more")  # to be changed and sent
        terminal.type(" songs\r")
        terminal.expect("fine\r\n")
        assert agent.engine.counters.submissions[-1].prompt[: len(kept) - 12] == kept[:-12]
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.end() == 0


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_narrow_terminal(agent: LiveServer, tmp_path: Path, no_color: str) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('{"type": "function", "function": {"name": "weather"}}')
    agent.engine.script = written(WEATHER_CALLS, "Done.", batch=4)
    arguments = ("chat", "Hi", "--url", agent.url, "--reasoning", "brief", "--tools", str(tools))
    command = ("--tool-command", "echo 21")
    with Terminal(*arguments, *command, columns=18, NO_COLOR=no_color) as terminal:
        counted = COLOR.sub("", terminal.expect("A moment."))
        # The count is written over and stays within the line.
        lines = counted.replace("\r\n", "").replace("\x1b[K", "").split("\r")[1:]
        assert len(lines) > 1
        assert all(line.startswith("reasoning: ") and len(line) <= 17 for line in lines)
        terminal.expect("[a]lways: ")
        terminal.type("n\r")
        terminal.expect("[a]lways: ")
        terminal.type("y\r")
        terminal.expect("result of weather:")
        terminal.expect("Done.\r\n")
        terminal.expect("first token after")
        assert terminal.end() == 0
        assert bool(COLOR.search(terminal.seen)) is not bool(no_color)


def test_a_terminal_that_can_nothing(agent: LiveServer) -> None:
    agent.engine.script = say("<think>Hm.</think>\n\nYes.")
    arguments = ("chat", "Hi", "--url", agent.url, "--reasoning", "brief")
    with Terminal(*arguments, TERM="dumb") as terminal:
        terminal.expect("first token after")
        assert terminal.end() == 0
        assert re.match(r"reasoning: \d+ tokens, \d\.\d s\r\nYes\.\r\n", terminal.seen)
        assert "\x1b" not in terminal.seen
