"""What the GLM recipe says about outputs is how its template writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from conversations import CONVERSATIONS
from glm_frontend import assets, files

from flare.contract import Frontend, Mark
from flare.frontend import TextOutput, Tokenizer
from flare.frontend.output_machine import (
    Answer,
    Arguments,
    Broken,
    CallEnd,
    CallStart,
    OutputEvent,
    OutputMachine,
    Reasoning,
    opens_reasoning,
)
from flare.frontend.template import ChatTemplate
from flare.grammar import GrammarError, Matcher, Vocabulary, compose, json_schema
from flare.prepare import CheckpointError
from flare_recipe_glm.tiny_template import TEMPLATE
from flare_recipe_glm.tiny_text import TOKENS, tokenizer

FORM = files().frontend.output
MARKS = {
    mark.token: mark
    for pair in (FORM.reasoning, FORM.calls)
    for mark in (getattr(pair, "start", None), getattr(pair, "end", None))
    if isinstance(mark, Mark)
}
TEXT = Tokenizer(tokenizer().to_str().encode())
TOOLS: dict[str, Any] = {
    "weather": {
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "at": {"type": ["string", "null"]},
            "units": {"type": "array", "items": {"type": "string"}},
            "exact": {"type": "boolean"},
            "place": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        }
    },
    "now": {},
}


def read(written: str, tools: dict[str, Any] | None, reasoning: bool = True) -> list[OutputEvent]:
    """The events of an output, fed token by token as a server feeds it."""
    machine, text = OutputMachine(FORM, tools=tools, reasoning=reasoning), TextOutput(TEXT)
    events: list[OutputEvent] = []
    for token in TEXT.encode(written):
        mark = MARKS.get(token)
        for piece in (text.pass_over(), mark) if mark is not None else (text.feed(token),):
            events += machine.feed(piece)
    return [*events, *machine.feed(text.finish()), *machine.finish()]


def joined(events: Sequence[OutputEvent], kind: type[Reasoning] | type[Answer]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def called(events: Sequence[OutputEvent]) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of finished calls, in order."""
    names = {event.index: event.name for event in events if isinstance(event, CallStart)}
    ended = [event.index for event in events if isinstance(event, CallEnd)]
    texts = {
        index: "".join(e.text for e in events if isinstance(e, Arguments) and e.index == index)
        for index in ended
    }
    assert ended == sorted(ended)
    return [(names[index], json.loads(texts[index])) for index in ended]


def test_the_format_is_data_with_the_tokenizers_marks() -> None:
    frontend = files().frontend
    assert Frontend.model_validate_json(frontend.model_dump_json()).output == FORM
    assert len(MARKS) == 4
    assert all(TEXT.encode(mark.text) == [token] for token, mark in MARKS.items())
    assert frontend.eos_token_ids == tuple(
        TOKENS[name] for name in ("<|endoftext|>", "<|user|>", "<|observation|>")
    )


def test_reasoning_answer_and_parallel_calls() -> None:
    events = read(
        "I look\nfor it.</think>One moment.\n<tool_call>weather<arg_key>city</arg_key>"
        "<arg_value>Zürich</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>now</tool_call>"
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value> 12 </arg_value>\n</tool_call>",
        TOOLS,
    )
    assert joined(events, Reasoning) == "I look\nfor it."
    assert joined(events, Answer) == "One moment."
    assert called(events) == [
        ("weather", {"city": "Zürich", "days": 3}),
        ("now", {}),
        ("weather", {"city": " 12 "}),
    ]


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("city", "3", "3"),
        ("city", '{"a": 1}', '{"a": 1}'),
        ("city", "", ""),
        ("city", 'a\n\t"b" \\ </arg_key><tool_call>', 'a\n\t"b" \\ </arg_key><tool_call>'),
        ("city", "</think></tool_call>", "</think></tool_call>"),
        ("days", "3", 3),
        ("days", " 3\n", 3),
        ("days", "three", "three"),
        ("at", "null", "null"),
        ("units", '["a", "b"]', ["a", "b"]),
        ("units", '["a', '["a'),
        ("exact", "true", True),
        ("exact", "True", "True"),
        ("place", '{"x": {"y": [1.5, null]}}', {"x": {"y": [1.5, None]}}),
        ("place", "null", None),
        ("unknown", "3", "3"),
    ],
)
def test_values_have_the_types_of_the_schema(key: str, written: str, value: Any) -> None:
    text = f"</think><tool_call>weather<arg_key>{key}</arg_key><arg_value>{written}</arg_value></tool_call>"
    assert called(read(text, TOOLS)) == [("weather", {key: value})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>wea",
        "<tool_call>weather<arg_key>ci",
        "<tool_call>weather<arg_key>city</arg_key>",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Zür",
        "<tool_call>weather<arg_key>days</arg_key><arg_value>3",
        "<tool_call>weather<arg_key>days</arg_key><arg_value>3</arg_value>",
    ],
)
def test_an_unfinished_call_is_reported_and_never_shown(text: str) -> None:
    events = read(f"so</think>Wait.{text}", TOOLS)
    assert joined(events, Answer) == "Wait."
    assert called(events) == []
    assert isinstance(events[-1], Broken)
    assert events[-1].text == text


def test_a_broken_call_does_not_take_the_next_one_along() -> None:
    events = read("</think><tool_call>now oops</tool_call><tool_call>now</tool_call>", TOOLS)
    assert [event.text for event in events if isinstance(event, Broken)] == [
        "<tool_call>now oops</tool_call>"
    ]
    assert called(events) == [("now", {})]


def test_reasoning_that_does_not_end_is_reasoning() -> None:
    events = read("I wonder <arg_key>", TOOLS)
    assert joined(events, Reasoning) == "I wonder <arg_key>"
    assert joined(events, Answer) == ""


def test_the_prompt_opens_the_reasoning() -> None:
    template = ChatTemplate(TEMPLATE, {})
    for variables in ({}, {"clear_thinking": True}, {"reasoning_effort": "low"}, {"enable_thinking": False}):
        rendered = template.render([{"role": "user", "content": "1+1?"}], variables=variables)
        assert opens_reasoning(rendered.text, FORM)


def written_calls() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every message with calls in the list of conversations: its name, itself, and the tools."""
    for name, conversation in CONVERSATIONS.items():
        tools = {
            tool["function"]["name"]: tool["function"].get("parameters") for tool in conversation.tools or ()
        }
        for place, message in enumerate(conversation.messages):
            if message.get("tool_calls"):
                yield f"{name} {place}", dict(message), tools


CALLS = {name: (message, tools) for name, message, tools in written_calls()}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_the_template_writes_are_read_as_they_were_made(name: str) -> None:
    message, tools = CALLS[name]
    functions = [call["function"] for call in message["tool_calls"]]
    made = [(one["name"], json.loads(one["arguments"] or "{}")) for one in functions]
    calls = [{"function": {"name": one, "arguments": arguments}} for one, arguments in made]
    text = ChatTemplate(TEMPLATE, {}).render([{**message, "tool_calls": calls}], generation_prompt=False).text
    events = read(text.partition("<|assistant|><think>")[2], tools)
    assert joined(events, Reasoning) == (message.get("reasoning_content") or "")
    assert joined(events, Answer) == (message.get("content") or "").strip()
    assert called(events) == [
        (one, {key: as_declared(value, key, tools.get(one)) for key, value in arguments.items()})
        for one, arguments in made
    ]


def as_declared(value: Any, key: str, schema: Any) -> Any:
    """An argument that its schema does not describe, or as text, comes back as the text it was written in."""
    kind = ((schema or {}).get("properties") or {}).get(key, {}).get("type", "string")
    if isinstance(value, str) or "string" not in kind:
        return value
    return json.dumps(value, ensure_ascii=False)


def test_what_the_tokenizer_must_have() -> None:
    for lacking in ("<|user|>", "<|observation|>"):
        content = tokenizer().to_str().replace(lacking, "<|other|>")
        with pytest.raises(CheckpointError, match="the tokenizer lacks"):
            files(tokenizer=content.encode())
    with pytest.raises(CheckpointError, match="no tokenizer or no chat template"):
        files(chat_template=None)
    special = json.loads(tokenizer().to_str())
    for token in special["added_tokens"]:
        token["special"] = token["special"] or token["content"] == "<arg_key>"
    with pytest.raises(CheckpointError, match="<arg_key> is a special token"):
        files(tokenizer=json.dumps(special).encode())


def test_marks_that_are_no_tokens_are_text() -> None:
    other = json.loads(tokenizer().to_str())
    other["added_tokens"] = [token for token in other["added_tokens"] if token["content"] != "<think>"]
    form = files(tokenizer=json.dumps(other).encode()).frontend.output
    assert form.reasoning is not None
    assert form.reasoning.start == Mark(text="<think>")
    assert form.reasoning.end == Mark(text="</think>", token=TOKENS["</think>"])


def test_sampling_is_that_of_the_model_card() -> None:
    sampling = files().frontend.default_sampling
    assert (sampling.temperature, sampling.top_p) == (1.0, 0.95)
    # It names no other filter.
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (0, 0.0, 1.0)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.0, 0.0)


def test_assets_are_the_checkpoints() -> None:
    made = assets()
    assert made.template == TEMPLATE
    assert made.frontend.images is not None
    assert made.frontend.images.placeholder == TOKENS["<|image|>"]


def test_calls_are_admitted_beside_a_schema_and_an_unknown_tool_is_not() -> None:
    frontend = files().frontend
    vocabulary = Vocabulary(tokenizer().to_str().encode(), frontend.vocab_size, frontend.eos_token_ids)
    schema = json_schema({"type": "object"}, "s")
    made = compose(schema, FORM, opened=True, token_of=TEXT.token, tools=tuple(TOOLS))
    compiled = Matcher.compile(vocabulary, made)
    calls = (
        "<tool_call>now</tool_call>\n"
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    )
    for thought in ("I look.</think>\n", "I look. "):  # the mark may be forgotten
        matcher = compiled.copy()
        matcher.advance(TEXT.encode(thought + calls))
        assert matcher.accepts
        assert [name for name, _ in called(read(thought + calls, TOOLS))] == ["now", "weather"]
    with pytest.raises(GrammarError):
        compiled.copy().advance(TEXT.encode("</think><tool_call>other</tool_call>"))
