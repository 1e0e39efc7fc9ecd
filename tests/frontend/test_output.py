"""Tokens to shown text: stop tokens, stop strings, minimum lengths."""

from __future__ import annotations

import pytest

from flare.frontend import TextOutput, Tokenizer
from flare.testing.tiny_text import tiny_tokenizer

TOKENIZER = Tokenizer(tiny_tokenizer().to_str().encode())
END = 2


def run(output: TextOutput, tokens: list[int]) -> str:
    text = ""
    for token in tokens:
        if output.stopped:
            break
        text += output.feed(token)
    return text + output.finish()


def test_a_stop_token_has_no_text_and_releases_what_was_held() -> None:
    output = TextOutput(TOKENIZER, stops=["###"], stop_token_ids=[END])
    tokens = TOKENIZER.encode("title ##")

    assert run(output, [*tokens, END, *tokens]) == "title ##"
    assert output.stopped
    assert not output.cut
    assert output.tokens == len(tokens) + 1


def test_an_ordinary_token_can_be_a_stop_token() -> None:
    tokens = TOKENIZER.encode("one two")
    output = TextOutput(TOKENIZER, stop_token_ids=[tokens[-1]])

    assert run(output, tokens) == TOKENIZER.decode(tokens[:-1])


def test_a_stop_string_across_tokens_is_cut_and_tokens_count_to_the_match() -> None:
    tokens = TOKENIZER.encode("alpha beta gamma delta")
    output = TextOutput(TOKENIZER, stops=["ta ga"])

    assert run(output, tokens) == "alpha be"
    assert output.cut
    needed = next(n for n in range(len(tokens)) if "ta ga" in TOKENIZER.decode(tokens[:n]))
    assert output.tokens == needed
    assert output.shown == len("alpha be")


def test_special_tokens_that_do_not_stop_have_no_text() -> None:
    tokens = [1, *TOKENIZER.encode("x"), 0, *TOKENIZER.encode("y"), END]

    assert run(TextOutput(TOKENIZER), tokens) == "xy"


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    tokens = TOKENIZER.encode("ok 🙂")

    assert run(TextOutput(TOKENIZER), tokens[:-1]) == TOKENIZER.decode(tokens[:-1])


@pytest.mark.parametrize("min_tokens", range(8))
def test_stop_strings_count_only_behind_the_minimum(min_tokens: int) -> None:
    tokens = [TOKENIZER.encode("x")[0]] * 12
    output = TextOutput(TOKENIZER, stops=["xx"], min_tokens=min_tokens)

    assert run(output, tokens) == "x" * min_tokens
    assert output.tokens == min_tokens + 2
