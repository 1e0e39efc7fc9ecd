"""Marks in a stream of text and tokens, found however the text is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flare.contract import Mark

Piece = str | Mark
"""A piece of an output: text, or a token that is a mark."""


class MarkFinder:
    """Text that is not read yet. What may be the beginning of a mark is held back until it is certain.

    Of several marks the one that begins first wins, of those the longest. Which marks count is asked each
    time, because it changes with every mark.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> None:
        """More of the output."""
        self._held += text

    def give_back(self, text: str) -> None:
        """Text that was taken and not used."""
        self._held = text + self._held

    def search(self, marks: Sequence[Mark], last: bool = False) -> tuple[str, Mark | None]:
        """Text before the first of `marks`, and that mark; or text that belongs to none of them, and None.
        Both are taken. Marks that are tokens are not looked for. With `last` nothing more comes."""
        held = self._held
        texts = {mark.text: mark for mark in marks if mark.token is None}
        if not any(text[0] in held for text in texts):  # nearly always
            self._held = ""
            return held, None
        found = min(
            ((start, -len(text), text) for text in texts if (start := held.find(text)) >= 0), default=None
        )
        keep = len(held) if last else _possible_start(held, list(texts))
        if found is not None and found[0] <= keep:
            start, _, text = found
            self._held = held[start + len(text) :]
            return held[:start], texts[text]
        self._held = held[keep:]
        return held[:keep], None


def _possible_start(text: str, marks: Sequence[str]) -> int:
    """Where the longest tail of `text` that begins a mark, and is none, starts."""
    longest = max(map(len, marks), default=0)
    for start in range(max(0, len(text) - longest + 1), len(text)):
        tail = text[start:]
        if any(len(mark) > len(tail) and mark.startswith(tail) for mark in marks):
            return start
    return len(text)


def pieces(text: str, marks: Sequence[Mark]) -> Iterator[Piece]:
    """`text` with tokens in the place of the texts of marks that are tokens."""
    finder = MarkFinder()
    finder.feed(text)
    tokens = {mark.text: mark for mark in marks if mark.token is not None}
    spelled = [Mark(text=each) for each in tokens]
    while True:
        before, found = finder.search(spelled, last=True)
        if before:
            yield before
        if found is None:
            return
        yield tokens[found.text]
