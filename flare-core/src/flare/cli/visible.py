"""Texts of others as a terminal may see them."""

from __future__ import annotations

_PICTURES = 0x2400  # Unicode's pictures of control characters begin here, in the order of the characters
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of a text around: what is read is then not what is there."""

_LINE = (
    {code: chr(_PICTURES + code) for code in range(0x20)}
    | {0x7F: "\u2421"}
    | {code: f"<U+{code:04X}>" for code in (*range(0x80, 0xA0), *_DIRECTIONS)}
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_TEXT = {code: shown for code, shown in _LINE.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """`text` with pictures in the place of control characters, so that no escape sequence is left; line ends
    and tabs stay."""
    return text.replace("\r\n", "\n").translate(_TEXT)


def visible_line(text: str) -> str:
    """The same, in one line."""
    return text.translate(_LINE)
