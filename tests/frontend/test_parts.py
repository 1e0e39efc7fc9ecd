"""Parts of a chat's output: reasoning and answer, token by token."""

from __future__ import annotations

import pytest

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.errors import RequestError
from flare.frontend import PartedOutput, Prompts, TextOutput, Tokenizer
from flare.frontend.output_machine import Answer, OutputEvent, Reasoning, joined
from flare.testing.tiny_text import END, START, tiny_assets, tiny_tokenizer

TOKENIZER = Tokenizer(tiny_tokenizer().to_str().encode())
FORM = OutputFormat(reasoning=ReasoningFormat(start=Mark(text=START, token=1), end=Mark(text=END, token=2)))


def read(tokens: list[int], stops: tuple[str, ...] = (), reasoning: bool = False) -> tuple[str, str, int]:
    output = PartedOutput(TextOutput(TOKENIZER, stops), FORM, reasoning)
    events: list[OutputEvent] = []
    for token in tokens:
        if not output.text.stopped:
            events += output.feed(token)
    events = joined(events + output.finish())
    assert len(events) <= 2
    thoughts = "".join(event.text for event in events if isinstance(event, Reasoning))
    answers = "".join(event.text for event in events if isinstance(event, Answer))
    return thoughts, answers, output.text.tokens


def encode(text: str) -> list[int]:
    return list(TOKENIZER.encode(text))


def test_reasoning_and_answer_are_told_apart() -> None:
    tokens = [1, *encode("\nI think 語.\n"), 2, *encode("\n\nIt is 🙂.")]
    assert read(tokens) == ("I think 語.", "It is 🙂.", len(tokens))
    assert read(tokens[1:], reasoning=True) == ("I think 語.", "It is 🙂.", len(tokens) - 1)


def test_tokens_of_reasoning_are_counted() -> None:
    output = PartedOutput(TextOutput(TOKENIZER), FORM)
    for token in [1, *encode("abc"), 2, *encode("xy")]:
        output.feed(token)
    assert output.reasoning_tokens == 4  # with the mark that ends it


def test_an_unfinished_character_before_a_mark_is_not_lost() -> None:
    tokens = [1, *encode("語")[:1], 2, *encode("x")]
    assert read(tokens) == ("\ufffd", "x", 4)


def test_stop_strings_end_either_part_and_do_not_span_marks() -> None:
    tokens = [1, *encode("one two"), 2, *encode("three four")]
    assert read(tokens, ("two",))[:2] == ("one", "")
    assert read(tokens, ("four",))[:2] == ("one two", "three ")
    assert read(tokens, ("two" + "three",))[:2] == ("one two", "three four")


def test_without_a_format_all_is_the_answer() -> None:
    output = PartedOutput(TextOutput(TOKENIZER))
    assert [output.feed(token) for token in [1, *encode("a")]] == [[], [Answer("a")]]


def test_template_variables() -> None:
    template = "{{ messages[0].content }}{{ ' quietly' if not enable_thinking }}"
    prompts = Prompts(tiny_assets(template=template))
    messages = [{"role": "user", "content": "go"}]
    assert prompts.from_messages(messages, variables={"enable_thinking": False}).text == "go quietly"
    assert prompts.from_messages(messages, variables={"enable_thinking": True}).text == "go"
    for name in ("messages", "bos_token", "add_generation_prompt", "__class__", "a b"):
        with pytest.raises(RequestError, match="cannot be given"):
            prompts.from_messages(messages, variables={name: 1})
