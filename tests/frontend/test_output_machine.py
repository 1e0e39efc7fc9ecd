"""The output machine: the same events however an output is cut, and what every format means."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from output_formats import FORMATS, cut, marks_of
from output_formats import read as read_with

from flare.contract import OutputFormat
from flare.frontend.output_machine import (
    Answer,
    Arguments,
    Broken,
    CallEnd,
    CallStart,
    OutputMachine,
    Reasoning,
    opens_reasoning,
)
from flare.frontend.output_machine.marks import pieces

TOOLS = {
    "weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "at": {}}},
    "now": {},
}
ARGUMENTS = {"city": 'Zürich "\\ \n</think> <b>', "days": 3, "at": "noon"}
WRITTEN = {
    "function": (
        "<think>\nI look.\n</think>\n\nOne moment.\n<tool_call>\n<function=weather>\n<parameter=city>\n"
        'Zürich "\\ \n</think> <b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n'
        "<parameter=at>\nnoon\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
        "</function>\n</tool_call>"
    ),
    "function in text": (
        "<think>I look.</think>One moment.<tool_call><function=weather><parameter=city>"
        'Zürich "\\ \n</think> <b></parameter><parameter=days>3</parameter>'
        "<parameter=at>noon</parameter></function></tool_call><tool_call><function=now></function></tool_call>"
    ),
    "key and value": (
        "<think>I look.</think>One moment.<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>"
        'Zürich "\\ \n</think> <b></arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n'
        "<arg_key>at</arg_key><arg_value>noon</arg_value></tool_call>\n<tool_call>now</tool_call>"
    ),
    "sections": (
        "<think>I look.</think>\n\nOne moment.\n\n<｜DSML｜tool_calls>\n"
        '<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">'
        'Zürich "\\ \n</think> <b></｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">'
        '3</｜DSML｜parameter>\n<｜DSML｜parameter name="at" string="true">noon</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    ),
    "json": (
        '<think>I look.</think>\n\nOne moment.\n<tool_call>\n{"name": "weather", "arguments": '
        + json.dumps(ARGUMENTS, ensure_ascii=False)
        + '}\n</tool_call>\n<tool_call>{"arguments": {}, "name": "now"}</tool_call>'
    ),
}


def read(form, parts, tools=TOOLS, reasoning=False):
    return read_with(form, parts, tools, reasoning)


def whole(name: str) -> list:
    return list(pieces(WRITTEN[name], marks_of(FORMATS[name])))


def expected(name: str) -> list:
    return [
        Reasoning("I look."),
        Answer("One moment."),
        CallStart(0, "weather"),
        Arguments(0, json.dumps(ARGUMENTS, ensure_ascii=False)),
        CallEnd(0),
        CallStart(1, "now"),
        Arguments(1, "{}"),
        CallEnd(1),
    ]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_read(name):
    assert read(FORMATS[name], whole(name)) == expected(name)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(WRITTEN)),
    words=st.lists(
        st.sampled_from(
            [
                *("a", " ", "\n", "now", "{", "}", '"', ",", ":", "\\", "<", ">"),
                *("<think>", "</think>", "<tool_call>", "</tool_call>"),
                *("<function=now>", "</function>", "<parameter=x>", "</parameter>"),
                *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
                *("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", '<｜DSML｜invoke name="', '">'),
                *("</｜DSML｜invoke>", '{"name": "now"}', '{"name": "now", "arguments": {"a": [1]}}'),
            ]
        ),
        max_size=25,
    ),
    places=st.sets(st.integers(1, 200), max_size=12),
    reasoning=st.booleans(),
)
@example("function in text", ["<tool_call>", "a", "</tool_call>", "a"], {12}, False)
@example("function in text", ["<tool_call>", "</tool_call>", "a", "<function=now>"], {11, 13}, False)
def test_any_output_is_read_the_same_way_however_it_is_cut(name, words, places, reasoning):
    parts = list(pieces("".join(words), marks_of(FORMATS[name])))
    want = read(FORMATS[name], parts, reasoning=reasoning)
    assert read(FORMATS[name], cut(parts, places), reasoning=reasoning) == want
    for event in want:
        if isinstance(event, CallEnd):
            (arguments,) = (e.text for e in want if isinstance(e, Arguments) and e.index == event.index)
            assert isinstance(json.loads(arguments), dict)


FUNCTION_FORMAT = FORMATS["function"]


def function(text: str, **options) -> list:
    return read(FUNCTION_FORMAT, list(pieces(text, marks_of(FUNCTION_FORMAT))), **options)


def test_a_prompt_may_open_the_reasoning():
    assert opens_reasoning("<|im_start|>assistant\n<think>\n", FUNCTION_FORMAT)
    assert not opens_reasoning("<think>\n</think>\n\n", FUNCTION_FORMAT)
    assert not opens_reasoning("<think>", OutputFormat())
    assert function("I look.\n</think>\n\nYes.", reasoning=True) == [Reasoning("I look."), Answer("Yes.")]


def test_reasoning_that_does_not_end_is_reasoning():
    assert function("<think>\nI wonder ") == [Reasoning("I wonder")]


def test_a_call_inside_reasoning_ends_it():
    text = "I look<tool_call>\n<function=now>\n</function>\n</tool_call>"
    assert function(text, reasoning=True) == [
        Reasoning("I look"),
        CallStart(0, "now"),
        Arguments(0, "{}"),
        CallEnd(0),
    ]


def test_marks_spelled_by_other_tokens_are_text():
    parts = ["Write <think> and ", "<tool_call>", " in your prompt.</think>"]
    assert read(FUNCTION_FORMAT, parts) == [Answer("".join(parts))]


def test_marks_without_a_meaning_are_text():
    assert function("It is </think> done") == [Answer("It is </think> done")]
    assert function("It <think> is") == [Answer("It <think> is")]
    assert function("<think>a</think>b<think>c") == [Reasoning("a"), Answer("b<think>c")]


def test_without_tools_there_are_no_calls():
    text = "See <tool_call><function=now></function></tool_call>"
    assert function(text, tools=None) == [Answer(text)]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("<tool_call>\n<function=we", None),
        ("<tool_call>\n<function=weather>\n<parameter=city>\nZür", 0),
        ("<tool_call>\n<function=weather>\n", 0),
    ],
)
def test_an_unfinished_call_is_reported_and_never_shown(text, index):
    events = function("Wait.\n" + text)
    assert events[0] == Answer("Wait.")
    assert events[-1] == Broken(index, text)
    assert not any(isinstance(event, CallEnd) for event in events)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>weather in Zürich</tool_call>",
        "<tool_call>\n<function=weather now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=weather>\nZürich\n</function>\n</tool_call>",
    ],
)
def test_a_malformed_call_is_reported_and_what_follows_is_read(text):
    events = function(f"{text}\n<tool_call>\n<function=now>\n</function>\n</tool_call>Done.")
    (broken,) = (event for event in events if isinstance(event, Broken))
    assert broken.text == text
    index = sum(isinstance(event, CallStart) for event in events) - 1
    assert events[-4:] == [CallStart(index, "now"), Arguments(index, "{}"), CallEnd(index), Answer("Done.")]


@pytest.mark.parametrize(
    ("schema", "value", "want"),
    [
        ({"type": "string"}, "3", '"3"'),
        ({"type": "integer"}, "3", "3"),
        ({"type": ["integer", "null"]}, "null", "null"),
        ({"type": "object"}, '{"a": [1, 2]}', '{"a": [1, 2]}'),
        ({"type": "integer"}, "three", '"three"'),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"enum": [1, 2]}, "2", "2"),
        ({"enum": ["a"]}, "a", '"a"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", "null"),
        (None, "3", '"3"'),
        ({"type": "string"}, "\na\n", '"\\na\\n"'),
        ({"type": "string"}, "", '""'),
    ],
)
def test_values_have_the_types_of_the_schema(schema, value, want):
    tools = {"f": {"properties": {} if schema is None else {"x": schema}}}
    text = f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert function(text, tools=tools)[1] == Arguments(0, '{"x": ' + want + "}")


def test_string_arguments_stream():
    machine = OutputMachine(FUNCTION_FORMAT, tools=TOOLS)
    text = "<tool_call>\n<function=weather>\n<parameter=city>"
    for piece in pieces(text, marks_of(FUNCTION_FORMAT)):
        machine.feed(piece)
    assert machine.feed("\nZü") == [Arguments(0, '"city": "Zü')]
    assert machine.feed('ri"') == [Arguments(0, 'ri\\"')]


def test_json_that_breaks_late_gives_the_same_events_however_it_is_cut():
    text = '<tool_call>{"name": "now", "arguments": {"a": 1}, oops}</tool_call>'
    want = read(FORMATS["json"], [text])
    assert want == [CallStart(0, "now"), Arguments(0, '{"a": 1}'), Broken(0, text)]
    for place in range(1, len(text)):
        assert read(FORMATS["json"], [text[:place], text[place:]]) == want


def test_json_arguments_stream_when_the_name_comes_first():
    machine = OutputMachine(FORMATS["json"], tools=TOOLS)
    assert machine.feed('<tool_call>{"name": "weather", "arguments": {"ci') == [
        CallStart(0, "weather"),
        Arguments(0, '{"ci'),
    ]
    assert machine.feed('ty": "</tool_call>"}}') == [Arguments(0, 'ty": "</tool_call>"}')]
    assert machine.feed("</tool_call>") == [CallEnd(0)]
