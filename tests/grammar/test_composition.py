"""Composed grammars: reasoning is free until its end, the constraint holds behind it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.errors import CoreError
from flare.grammar import (
    Constraint,
    GrammarError,
    Matcher,
    Vocabulary,
    choice,
    compose,
    json_schema,
    lark,
    regex,
)
from flare.testing.tiny_text import byte_level, tiny_tokenizer

START, END = "<think>", "</think>"


def with_marks() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())
    backend.add_tokens(
        [tokenizers.AddedToken(text, special=False, normalized=False) for text in (START, END)]
    )
    return backend


TOKENIZERS = {"marks are tokens": with_marks(), "marks are spelled": tiny_tokenizer()}
VOCABULARIES = {
    name: Vocabulary(backend.to_str().encode(), 450, (0, 2)) for name, backend in TOKENIZERS.items()
}
CONSTRAINTS: dict[str, tuple[Constraint, list[str], list[str]]] = {
    "choice": (choice(["yes", 'n"o\\\n', "é🙂"], "c"), ["yes", 'n"o\\\n', "é🙂"], ["ye", "no", "yes!", ""]),
    "regex": (regex(r"a/b+\d{2}", "r"), ["a/b12", "a/bbb07"], ["a/12", "a/b1", "a/b١٢", "xa/b12"]),
    "lark": (lark('start: x\nx: "q" | "(" x ")"\n', "g"), ["q", "((q))"], ["((q)", "qq"]),
    "schema": (
        json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, "s"),
        ['{"a": 1}', '{\n  "a": -5,\n  "b": []\n}', '{"a":0}'],
        ['{"a":"1"}', "{}", '{\n\n\n\n"a":1}', ' {"a":1}', "[]"],
    ),
}


def forms(name: str) -> list[tuple[OutputFormat | None, bool]]:
    backend = TOKENIZERS[name]
    text = ReasoningFormat(start=Mark(text=START), end=Mark(text=END))
    found: list[tuple[OutputFormat | None, bool]] = [(None, False), (OutputFormat(), False)]
    found += [(OutputFormat(reasoning=text), opened) for opened in (False, True)]
    if (token := backend.token_to_id(END)) is not None:
        start = Mark(text=START, token=backend.token_to_id(START))
        by_token = ReasoningFormat(start=start, end=Mark(text=END, token=token))
        found += [(OutputFormat(reasoning=by_token), opened) for opened in (False, True)]
    return found


def accepts(matcher: Matcher, tokens: list[int]) -> bool:
    try:
        matcher.advance(tokens)
    except GrammarError:
        return False
    return matcher.accepts


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_answers_are_held_to_the_constraint_and_reasoning_is_not(name: str, kind: str) -> None:
    backend, vocabulary = TOKENIZERS[name], VOCABULARIES[name]
    constraint, good, bad = CONSTRAINTS[kind]
    for form, opened in forms(name):
        made = compose(constraint, form, opened=opened, token_of=backend.token_to_id)
        compiled = Matcher.compile(vocabulary, made)
        reasons = form is not None and form.reasoning is not None
        beginnings = [] if opened else [""]
        if reasons:
            opening = "" if opened else START
            beginnings += [opening + said + END for said in ("", "hm, é 🙂\n</thin", "yes {")]
            beginnings += [opening + "so" + END + "\n\n"]
        for beginning in beginnings:
            for answer, expected in [*((text, True) for text in good), *((text, False) for text in bad)]:
                if beginning and answer.startswith(" "):
                    continue  # a blank behind reasoning belongs to the format
                tokens = backend.encode(beginning + answer).ids
                assert accepts(compiled.copy(), tokens) is expected, (form, opened, beginning, answer)
        if reasons:
            assert not accepts(compiled.copy(), backend.encode((opening if opened else START) + good[0]).ids)


def mask_of(matcher: Matcher, vocabulary: Vocabulary) -> set[int]:
    mask = np.full(vocabulary.words, -1, np.int32)
    matcher.fill(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_no_end_token_comes_within_reasoning_and_only_end_tokens_behind_the_answer() -> None:
    backend, vocabulary = TOKENIZERS["marks are tokens"], VOCABULARIES["marks are tokens"]
    form, end = forms("marks are tokens")[-1][0], backend.token_to_id(END)
    matcher = Matcher.compile(vocabulary, compose(choice(["yes"], "c"), form, opened=True))

    free = mask_of(matcher, vocabulary)
    assert end in free
    assert not free & {0, 1, 2}
    assert len(free) > 250
    matcher.advance([end, *backend.encode("yes").ids])
    assert mask_of(matcher, vocabulary) == {0, 2}


def test_a_stop_token_is_admitted_exactly_where_the_answer_is_complete() -> None:
    backend, vocabulary = TOKENIZERS["marks are spelled"], VOCABULARIES["marks are spelled"]
    (stop,) = backend.encode("a").ids
    matcher = Matcher.compile(vocabulary, compose(regex("[ab]{2,3}", "r"))).copy((0, 2, stop))
    (b,) = backend.encode("b").ids

    assert stop not in mask_of(matcher, vocabulary)
    matcher.advance([b, b])
    assert {0, 2, stop, b} <= mask_of(matcher, vocabulary)
    assert matcher.admissible([b, 0, b]) == 1
    assert matcher.admissible([stop]) == 0


def test_drafts_are_taken_back() -> None:
    backend, vocabulary = TOKENIZERS["marks are spelled"], VOCABULARIES["marks are spelled"]
    a, b = (backend.encode(letter).ids[0] for letter in "ab")
    matcher = Matcher.compile(vocabulary, compose(regex("ab{2}a", "r")))
    before = mask_of(matcher, vocabulary)
    masks = np.full((5, vocabulary.words), -1, np.int32)

    assert matcher.admissible([a, b, b, b]) == 3
    matcher.fill_drafts(masks, [a, b, b])

    alone = matcher.copy()
    for place, token in enumerate([a, b, b]):
        mask = np.zeros(vocabulary.words, np.int32)
        alone.fill(mask)
        assert (masks[place] == mask).all()
        alone.advance([token])
    assert (masks[4] == -1).all()
    assert mask_of(matcher, vocabulary) == before
    assert matcher.position == 0


def test_masks_have_no_bits_behind_the_vocabulary() -> None:
    """Of a tokenizer with more tokens than the model has logits for, and of one with fewer."""
    text = byte_level(
        ["<end>", *(chr(97 + i) for i in range(26)), *(chr(65 + i) for i in range(26))]
    ).encode()
    for size in (40, 53, 70):
        vocabulary = Vocabulary(text, size, (0,))
        assert mask_of(Matcher.compile(vocabulary, compose(regex("[A-Za-z]", "r"))), vocabulary) == set(
            range(1, min(size, 53))
        )


def test_a_tokenizer_without_bytes_is_a_typed_error() -> None:
    words = json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})
    with pytest.raises(CoreError, match="grammars cannot be used with this tokenizer"):
        Vocabulary(words.encode(), 1, (0,))
