"""Token ids to text, one token at a time."""

from __future__ import annotations

from flare.frontend.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_LONGEST_CHARACTER = 4  # bytes of one UTF-8 character, so at most as many tokens
_LONGEST_WINDOW = 32
_KEPT_WINDOW = 16


class Detokenizer:
    """Incremental decoding: the concatenation of everything returned equals decoding all tokens at once.

    Text that later tokens may still change (an unfinished UTF-8 character) is held back. Special tokens have
    no text. Only a window of the last tokens is decoded, starting at the tokens that gave the last text, so
    that decoders which treat the first token differently see the same neighbourhood.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._context = 0  # leading tokens of the window whose text was returned long ago
        self._shown = ""  # text of the window that was returned
        self._stalled = 0  # tokens since the window's text stopped continuing what was returned

    def feed(self, token: int) -> str:
        """Text that became certain with `token`, often empty."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        certain = _certain(text)
        if not certain.startswith(self._shown) and self._stalled < _LONGEST_CHARACTER:
            # A byte-fallback decoder shows a run of bytes as broken until its last character is complete.
            self._stalled += 1
            return ""
        self._stalled = 0
        new = certain[len(self._shown) :]
        self._shown = certain
        if new and len(certain) == len(text):
            self._restart(self._context)
        elif len(self._window) > _LONGEST_WINDOW:
            self._restart(len(self._window) - _KEPT_WINDOW)
        return new

    def flush(self) -> str:
        """What is still held back, at the end of a text; another may begin."""
        new = self._tokenizer.decode(self._window)[len(self._shown) :]
        self._window.clear()
        self._context, self._shown, self._stalled = 0, "", 0
        return new

    def _restart(self, drop: int) -> None:
        del self._window[:drop]
        self._context = len(self._window)
        self._shown = _certain(self._tokenizer.decode(self._window))


def _certain(text: str) -> str:
    """`text` without trailing replacement characters that may be the start of one character (byte-fallback
    decoders write one for each of its bytes)."""
    end = len(text)
    while end > 0 and len(text) - end < _LONGEST_CHARACTER - 1 and text[end - 1] == _REPLACEMENT:
        end -= 1
    return text[:end]
