"""Tools, calls and results, from requests to what a template sees."""

from __future__ import annotations

from typing import Any

import pytest

from flare.errors import RequestError
from flare.frontend import UnsupportedError, normalize_messages
from flare.frontend.tools import normalize_tools

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def called(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def read(arguments: Any) -> Any:
    message = {"role": "assistant", "content": None, "tool_calls": [called(arguments)]}
    (made,) = normalize_messages([message])
    return made["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"b": 1, "a": [1.50, null, true, "\\u00e9"]}', {"b": 1, "a": [1.5, None, True, "é"]}),
        (' {\n"a": {}}\t', {"a": {}}),
        ("{}", {}),
        ("", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
    ],
)
def test_arguments_become_an_object(given: Any, arguments: dict[str, Any]) -> None:
    made = read(given)
    assert made == arguments
    assert list(made) == list(arguments)


def test_calls_and_results_keep_what_they_bring() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [called("{}", index=0)]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": [{"type": "text", "text": "b"}]},
    ]
    assert normalize_messages(messages) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [called({}, index=0)]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "b"},
    ]


def test_a_request_is_left_as_it_was() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [called("{}")]}
    normalize_messages([message])
    assert message == {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [called("{}")]}


@pytest.mark.parametrize(
    ("calls", "field"),
    [
        ("f", ""),
        ("", ""),
        ({}, ""),
        ([called("{}", id=7)], "[0].id"),
        (["f"], "[0]"),
        ([{"type": "function"}], "[0].function"),
        ([{"function": {"arguments": "{}"}}], "[0].function.name"),
        ([{"function": {"name": ""}}], "[0].function.name"),
        ([called("{}"), called("[1]")], "[1].function.arguments"),
        ([called("7")], "[0].function.arguments"),
        ([called("null")], "[0].function.arguments"),
        ([called(7)], "[0].function.arguments"),
        ([called('{"a": ')], "[0].function.arguments"),
        ([called('{"a": NaN}')], "[0].function.arguments"),
        ([called('{"a": 1, "a": 2}')], "[0].function.arguments"),
        ([called('{"a": "\\ud800"}')], "[0].function.arguments"),
        ([called('{"a":' * 5000 + "1" + "}" * 5000)], "[0].function.arguments"),
        ([called('{"a": [' + "[]," * 100_000 + "[]]}")], "[0].function.arguments"),
    ],
)
def test_malformed_calls_are_named(calls: Any, field: str) -> None:
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    with pytest.raises(RequestError) as caught:
        normalize_messages([message])
    assert caught.value.field == f"messages[0].tool_calls{field}"
    assert caught.value.code == "invalid_request"


def test_the_values_of_all_calls_are_bounded() -> None:
    calls = [called('{"a": [' + "1," * 60_000 + "1]}") for _ in range(9)]
    with pytest.raises(RequestError, match="too many values") as caught:
        normalize_messages([{"role": "assistant", "tool_calls": calls}])
    assert caught.value.field == "messages[0].tool_calls[8].function.arguments"


def test_only_an_assistant_calls() -> None:
    with pytest.raises(RequestError, match="only an assistant"):
        normalize_messages([{"role": "user", "content": "x", "tool_calls": [called("{}")]}])


def test_calls_of_other_things_are_unsupported() -> None:
    call = {"type": "custom", "custom": {"name": "f", "input": "x"}}
    with pytest.raises(UnsupportedError) as caught:
        normalize_messages([{"role": "assistant", "tool_calls": [call]}])
    assert caught.value.field == "messages[0].tool_calls[0].type"


def test_tools_stay_as_they_are() -> None:
    tools = [{"function": {"strict": True, "name": "ü", "description": None}, "type": "function"}, TOOL]
    made = normalize_tools(tools)
    assert made == tools
    assert [list(tool) for tool in made] == [["function", "type"], ["type", "function"]]


@pytest.mark.parametrize("tools", [None, [], ()])
def test_no_tools_are_none(tools: Any) -> None:
    assert normalize_tools(tools) is None


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ("f", ""),
        ({"type": "function"}, ".function"),
        ({"type": "function", "function": {"description": "x"}}, ".function.name"),
        ({"type": "function", "function": {"name": ["f"]}}, ".function.name"),
        ({"type": "function", "function": {"name": "f", "description": 1}}, ".function.description"),
        ({"type": "function", "function": {"name": "f", "parameters": "x"}}, ".function.parameters"),
    ],
)
def test_malformed_tools_are_named(tool: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalize_tools([TOOL, tool])
    assert caught.value.field == f"tools[1]{field}"


def test_tools_that_are_no_functions_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="'web_search'") as caught:
        normalize_tools([{"type": "web_search"}])
    assert caught.value.field == "tools[0].type"
