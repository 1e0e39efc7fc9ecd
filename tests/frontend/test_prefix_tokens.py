"""Texts that begin alike are tokenized once, and into the tokens of the whole text."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from flare.frontend import prefix_tokens
from flare.frontend.cuts import exact_cuts
from flare.frontend.errors import TooManyTokens
from flare.frontend.prefix_tokens import PrefixTokens

WORDS = ["the", " Theta ", "naïve", "🙂", "\n", "  ", "a", "ab", "abc", "x=1;", "日本", "<|im|", "|>", "END"]
CONTROL = ["<|im|>", "<|im|>x", "<|end|>", "<|pad|>"]


def byte_level() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    return trained(made, trainers.BpeTrainer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def metaspace() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return trained(made, trainers.BpeTrainer, special_tokens=["<unk>"])


def normalized() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase(), normalizers.Prepend("_")]
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return trained(made, trainers.WordPieceTrainer, special_tokens=["<unk>"])


def trained(made: tokenizers.Tokenizer, trainer: Any, **options: Any) -> tokenizers.Tokenizer:
    numbers = random.Random(1)
    corpus = ["".join(numbers.choice(WORDS) for _ in range(30)) for _ in range(50)]
    made.train_from_iterator(corpus, trainer(vocab_size=320, show_progress=False, **options))
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL[:3]])
    # One that takes the space beside it, and one of the text.
    made.add_special_tokens(
        [AddedToken(CONTROL[3], special=True, normalized=False, lstrip=True, rstrip=True)]
    )
    made.add_tokens([AddedToken("END", normalized=True)])
    return made


MAKERS = {make.__name__: make() for make in (byte_level, metaspace, normalized)}


class Counted:
    """Tokenizes, and counts the characters."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend, self.characters = backend, 0

    def __call__(self, text: str) -> Any:
        self.characters += len(text)
        return self.backend.encode_batch([text], add_special_tokens=False)[0]


def check(prefixes: PrefixTokens, backend: tokenizers.Tokenizer, text: str, marks: list[int]) -> None:
    whole = backend.encode_batch([text], add_special_tokens=False)[0]
    cuts = exact_cuts(np.array(whole.offsets, int).reshape(-1, 2), marks)
    expected = whole.ids, tuple(sorted({cut for cut in cuts.values() if cut}))
    assert prefixes.encode(text, marks, None) == expected


piece = st.sampled_from([*WORDS, *CONTROL, *CONTROL])
turn = st.lists(piece, min_size=1, max_size=12).map("".join)


@pytest.mark.parametrize("name", list(MAKERS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tokens_and_cuts_are_those_of_the_whole_text(name: str, data: st.DataObject) -> None:
    backend = MAKERS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_tokens, "_SHORT", 0)
        prefixes = PrefixTokens(backend, Counted(backend), data.draw(st.sampled_from([40, 200, 10_000])))
        history = [""]
        for _ in range(data.draw(st.integers(2, 6))):
            start = data.draw(st.sampled_from(history))
            text = start[: data.draw(st.integers(0, len(start)))] if data.draw(st.booleans()) else start
            text += data.draw(turn)
            history.append(text)
            marks = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)) | {len(start)})
            check(prefixes, backend, text, [mark for mark in marks if mark <= len(text)])


def conversation(turns: int, seed: int = 1) -> tuple[str, list[int]]:
    """A conversation's text and the ends of its messages."""
    numbers = random.Random(seed)
    text, marks = "", []
    for _ in range(turns):
        text += f"<|im|>user\n{' '.join(numbers.choice(WORDS) for _ in range(100))}<|end|>"
        marks.append(len(text))
    return text, marks


def test_a_turn_costs_what_is_appended() -> None:
    backend = MAKERS["byte_level"]
    count = Counted(backend)
    prefixes = PrefixTokens(backend, count)
    for turns in range(10, 60):
        text, marks = conversation(turns)
        before = count.characters
        check(prefixes, backend, text, marks)
        if turns > 10:
            assert count.characters - before < 1000
    branch = text[: marks[30]] + "<|im|>assistant\nanother<|end|>"
    before = count.characters
    check(prefixes, backend, branch, marks[:31])
    assert count.characters - before < 1000
    assert len(prefixes._known) == 2  # the longest one, and the branch


def test_a_mark_that_was_not_asked_for_before_is_found() -> None:
    backend = MAKERS["byte_level"]
    prefixes = PrefixTokens(backend, Counted(backend))
    text, marks = conversation(20)
    check(prefixes, backend, text, marks[3:])
    check(prefixes, backend, text + "<|im|>", marks)


def test_short_texts_and_texts_of_others_are_not_kept() -> None:
    backend = MAKERS["byte_level"]
    count = Counted(backend)
    prefixes = PrefixTokens(backend, count, most_characters=20_000)
    check(prefixes, backend, "<|im|>short<|end|>", [])
    check(prefixes, backend, "no control token " * 200, [])
    assert not prefixes._known
    for seed in range(20):
        text, marks = conversation(20, seed)
        check(prefixes, backend, text, marks)
        assert prefixes._characters == sum(map(len, prefixes._known)) <= 20_000
    huge, marks = conversation(100)
    check(prefixes, backend, huge, marks)
    assert huge not in prefixes._known


def test_tokens_of_the_whole_text_are_counted() -> None:
    backend = MAKERS["byte_level"]
    prefixes = PrefixTokens(backend, Counted(backend))
    text, marks = conversation(20)
    tokens, _ = prefixes.encode(text, marks, None)
    assert prefixes.encode(text, marks, len(tokens))[0] == tokens
    with pytest.raises(TooManyTokens) as caught:
        prefixes.encode(text, marks, len(tokens) - 1)
    assert (caught.value.count, caught.value.most) == (len(tokens), len(tokens) - 1)
