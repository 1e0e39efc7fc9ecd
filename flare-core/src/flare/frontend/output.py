"""The output of one sequence: tokens in, text to show out, and why it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flare.frontend.detokenizer import Detokenizer
from flare.frontend.stop_strings import StopMatcher
from flare.frontend.tokenizer import Tokenizer


class TextOutput:
    """Fed one token at a time, whatever the engine's step produced, so that no split changes the text.

    `stop_token_ids` end the output and have no text. `stops` are not looked for in the text of the first
    `min_tokens` tokens. Attributes: `tokens` fed, `decoded` characters before stop handling, `shown`
    characters returned, `stopped` whether a stop token or stop string ended the output, `cut` whether a stop
    string did: the engine does not know and must be told.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        stop_token_ids: Collection[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops)
        self._stop_token_ids = frozenset(stop_token_ids)
        self._min_tokens = min_tokens
        self.tokens = 0
        self.decoded = 0
        self.shown = 0
        self.stopped = False

    @property
    def cut(self) -> bool:
        """Whether a stop string ended the output."""
        return self._matcher.matched is not None

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the output."""
        return self._matcher.matched

    def feed(self, token: int) -> str:
        """Text to show now. Must not be called once `stopped`."""
        assert not self.stopped, "a token after the end of the output"
        self.tokens += 1
        if token in self._stop_token_ids:
            return self._end(stopped=True)
        return self._show(self._detokenizer.feed(token), checked=self.tokens > self._min_tokens)

    def pass_over(self) -> str:
        """A token that has a meaning and no text: text before it that was held back, and stop strings begin
        anew."""
        assert not self.stopped, "a token after the end of the output"
        self.tokens += 1
        text = self._show(self._detokenizer.flush(), checked=self.tokens > self._min_tokens)
        rest = "" if self.stopped else self._matcher.flush()
        self.shown += len(rest)
        return text + rest

    def finish(self) -> str:
        """Text still held back when the output ended at its length."""
        return "" if self.stopped else self._end(stopped=False)

    def _end(self, stopped: bool) -> str:
        text = self._show(self._detokenizer.flush(), checked=True)
        rest = self._matcher.flush()
        self.shown += len(rest)
        self.stopped = self.stopped or stopped
        return text + rest

    def _show(self, text: str, checked: bool) -> str:
        self.decoded += len(text)
        if checked:
            text = self._matcher.feed(text)
            self.stopped = self.cut
        self.shown += len(text)
        return text
