"""The text and the bytes of single tokens, for log-probabilities."""

from __future__ import annotations

import re
from functools import cache

from flare.frontend.tokenizer import Tokenizer

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_REPLACEMENT = "\ufffd"


class TokenBytes:
    """Answers for one tokenizer, remembered per token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, bytes]] = {}

    def __getitem__(self, token: int) -> tuple[str, bytes]:
        """Text (U+FFFD where the bytes are part of a character) and exact bytes of `token`."""
        known = self._known.get(token)
        if known is None:
            text = self._tokenizer.decode((token,), skip_special=False)
            data = text.encode()
            if _REPLACEMENT in text:
                data = _raw_bytes(self._tokenizer.piece(token) or "") or data
            known = self._known[token] = (text, data)
        return known

    def label(self, token: int) -> str:
        """The token's text, or `bytes:\\xNN...` when it is part of a character, as in OpenAI completions."""
        text, data = self[token]
        if _REPLACEMENT in text:
            return "bytes:" + "".join(f"\\x{value:02x}" for value in data)
        return text


def _raw_bytes(piece: str) -> bytes | None:
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes.fromhex(match[1])
    alphabet = _byte_alphabet()
    if piece and all(character in alphabet for character in piece):
        return bytes(alphabet[character] for character in piece)
    return None


@cache
def _byte_alphabet() -> dict[str, int]:
    """The printable characters that stand for bytes in byte-level vocabularies: printable Latin-1 stands for
    itself, the other bytes for the characters from U+0100 on (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(value): value for value in printable}
    others = (value for value in range(256) if value not in set(printable))
    alphabet.update({chr(0x100 + index): value for index, value in enumerate(others)})
    return alphabet
