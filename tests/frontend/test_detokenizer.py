"""One token at a time gives the text of all tokens at once."""

from __future__ import annotations

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from flare.frontend import Detokenizer, Tokenizer
from flare.testing.tiny_text import tiny_tokenizer

# The bytes of "語" (E8 AA 9E) by their names in byte-level vocabularies.
BYTE_NAMES = {0xE8: "\u00e8", 0xAA: "\u00aa", 0x9E: "\u0140"}
BYTE_LEVEL = Tokenizer(tiny_tokenizer().to_str().encode())


def byte_fallback() -> Tokenizer:
    """A tokenizer in the style of SentencePiece: a marker for spaces, bytes for unknown characters, and a
    decoder that strips the first space."""
    vocabulary = {f"<0x{value:02X}>": value for value in range(256)}
    for piece in ("▁", "a", "b", "▁a", "▁b", "ab", "▁ab", "é", "."):
        vocabulary[piece] = len(vocabulary)
    merges = [("a", "b"), ("▁", "a"), ("▁", "b"), ("▁", "ab")]
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend.to_str().encode())


BYTE_FALLBACK = byte_fallback()


def stream(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.feed(token) for token in tokens), detokenizer.flush()]


@given(st.lists(st.integers(0, 399), max_size=80))
def test_any_byte_level_tokens(tokens: list[int]) -> None:
    assert "".join(stream(BYTE_LEVEL, tokens)) == BYTE_LEVEL.decode(tokens)


@given(st.text(max_size=60), st.data())
def test_any_text_as_single_bytes_and_special_tokens(text: str, data: st.DataObject) -> None:
    byte_tokens = {piece: token for piece, token in tiny_tokenizer().get_vocab().items() if len(piece) == 1}
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = alphabet.pre_tokenize_str(text)
    tokens = [byte_tokens[character] for piece, _ in pieces for character in piece]
    for _ in range(data.draw(st.integers(0, 3))):
        tokens.insert(data.draw(st.integers(0, len(tokens))), data.draw(st.sampled_from([0, 1, 2])))

    assert "".join(stream(BYTE_LEVEL, tokens)) == text


@given(st.text("ab é.🙂語", max_size=60))
def test_text_through_byte_fallback(text: str) -> None:
    tokens = BYTE_FALLBACK.encode(text)

    assert "".join(stream(BYTE_FALLBACK, tokens)) == BYTE_FALLBACK.decode(tokens)


@given(st.lists(st.integers(0, 264), max_size=80))
def test_byte_fallback_never_stalls_on_garbage(tokens: list[int]) -> None:
    pieces = stream(BYTE_FALLBACK, [*tokens, *BYTE_FALLBACK.encode("a. ab b. ab")])

    assert "".join(pieces).endswith("ab b. ab")


def test_text_appears_as_soon_as_it_is_certain() -> None:
    tokens = [BYTE_FALLBACK.encode("a")[0], 0xF0, 0x9F, 0x99, 0x82, BYTE_FALLBACK.encode("b")[0]]

    assert stream(BYTE_FALLBACK, tokens) == ["a", "", "", "", "🙂", " b", ""]


def test_misaligned_characters_are_never_broken() -> None:
    """Every token ends in the middle of a character, for longer than any window."""
    data = ("語" * 100).encode()
    pieces = [data[:1], *(data[start : start + 3] for start in range(1, len(data) - 2, 3)), data[-2:]]
    names = [piece.decode("latin-1").translate(BYTE_NAMES) for piece in pieces]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(backend.to_str().encode())

    shown = stream(tokenizer, [vocabulary[name] for name in names])

    assert "".join(shown) == "語" * 100
    assert all(len(piece) <= 1 for piece in shown)


def test_an_unfinished_character_is_shown_at_the_end() -> None:
    tokens = BYTE_LEVEL.encode("x🙂")[:-1]

    assert "".join(stream(BYTE_LEVEL, tokens)) == BYTE_LEVEL.decode(tokens)
