"""What happens in which order: lines are read, questions asked, calls answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flare.cli.chat.answer import Answer
from flare.cli.chat.client import Server
from flare.cli.chat.commands import Commands
from flare.cli.chat.display import Display
from flare.cli.chat.figures import Totals, summary
from flare.cli.chat.history import History, Message
from flare.cli.chat.images import question
from flare.cli.chat.lines import Lines
from flare.cli.chat.model import Model
from flare.cli.chat.results import Results
from flare.errors import FlareError


@dataclass
class Chat:
    """A conversation. `body` has the fields of every request but the messages; `images` go with the next
    question. At most `rounds` times results are sent back before the user is asked; `seed` of the body
    changes with every answer that replaces another."""

    server: Server
    model: Model
    lines: Lines
    display: Display
    history: History
    results: Results
    body: dict[str, Any]
    rounds: int
    images: list[Message] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    last: Answer = field(default_factory=Answer)
    _replaced: int = 0

    def run(self) -> None:
        """Lines of the input until its end or `/quit`. What fails is shown, and the conversation goes on."""
        commands = Commands(self)
        if self.lines.interactive:
            self.display.note("/help lists the commands; ctrl-C stops an answer, ctrl-D ends the chat.")
        while not commands.ended:
            try:
                line = self.lines.line("> ")
                if line is None:
                    return
                if line := line.strip():
                    self._handle(line, commands)
            except KeyboardInterrupt:
                if not self.lines.interactive:
                    return
                self.display.note("\n(ctrl-D or /quit ends the chat)")
            except FlareError as error:
                self.display.error(str(error))

    def _handle(self, line: str, commands: Commands) -> None:
        command = line.startswith("/") and not line.startswith("//")
        try:
            if command:
                commands.run(line)
            else:
                self.ask(line.removeprefix("/"))
        except KeyboardInterrupt:
            self.display.note("(stopped)")
        except (FlareError, OSError) as error:
            self.display.error(str(error))
            if self.lines.interactive and self.history.waits and (line == "/retry" or not command):
                self.display.note("Nothing is lost: /retry sends it again, the next question replaces it.")

    def ask(self, text: str) -> bool:
        """A question with the images that wait for one; see `answer`."""
        self.history.ask(question(text, self.images))
        self.images = []
        self._replaced = 0
        return self.answer()

    def again(self) -> bool:
        """Another answer in the place of the last one, or one to what waits for it; see `answer`."""
        if not self.history.waits:
            self._replaced += 1
        if not self.history.branch():
            self.display.note("There is nothing to answer.")
            return False
        return self.answer()

    def answer(self) -> bool:
        """Draw answers and get results until an answer has no calls. False when calls are left without a
        result. Raises FlareError, with what waits for an answer at the end of the history."""
        for left in range(self.rounds, -1, -1):
            answer = self._draw()
            if not answer.asked:
                return True
            if not left:
                break
            for call in answer.asked:
                result = self.results.result(call)
                if result is None:
                    self.display.note("The calls are left without results.")
                    return False
                self.history.add_result(call, result)
        self.display.note(f"Results were sent back {self.rounds} times; these calls are left without.")
        return False

    def _draw(self) -> Answer:
        answer = self.last = Answer()
        body = {**self.body, "messages": self.history.messages}
        if "seed" in body:
            body["seed"] += self._replaced  # the same one would give the same answer
        try:
            for piece in self.server.stream(body, answer):
                self.display.piece(piece, answer)
        except KeyboardInterrupt:
            answer.stopped = True
        finally:
            self.display.end()
        if (message := answer.message) is not None:
            self.history.add_answer(message)
        self._remark(answer)
        self.totals.add(answer)
        self.display.note(summary(answer))
        return answer

    def _remark(self, answer: Answer) -> None:
        if answer.stopped:
            self.display.note("(stopped)")
        elif answer.finish == "length":
            self.display.note("(cut: the limit of tokens was reached)")
        if dropped := len(answer.calls) - len(answer.asked):
            self.display.note(f"({dropped} unfinished call{'s are' if dropped > 1 else ' is'} left out)")
        for broken in answer.broken:
            self.display.note(f"(no call of the model's format: {broken})")
