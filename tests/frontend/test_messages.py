from __future__ import annotations

import pytest

from flare.errors import RequestError
from flare.frontend import UnsupportedError, normalize_messages


def test_text_parts_become_one_string() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert normalize_messages([{"role": "user", "content": parts}]) == [
        {"role": "user", "content": "one\ntwo"}
    ]


def test_developer_is_system_and_may_stand_anywhere() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "system", "content": "c"},
    ]

    assert [message["role"] for message in normalize_messages(messages)] == ["user", "system", "system"]


def test_what_clients_replay_from_a_response_is_accepted() -> None:
    replayed = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "tool_calls": None,
        "function_call": None,
        "audio": None,
        "annotations": [],
    }

    assert normalize_messages([replayed]) == [{"role": "assistant", "content": "hi", "annotations": []}]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([None], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "tool", "content": 5}], "messages[0].content"),
        ([{"role": "tool", "content": None}], "messages[0].content"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": {}}], "messages[1].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ],
)
def test_malformed_messages_are_named(messages: list[object], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalize_messages(messages)
    assert caught.value.field == field
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
            "messages[0].content[0]",
        ),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[0].content[0]"),
        ({"role": "function", "content": "x", "name": "f"}, "messages[0].role"),
        ({"role": "assistant", "content": "", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "assistant", "content": "", "audio": {"id": "1"}}, "messages[0].audio"),
    ],
)
def test_unserved_content_is_refused_as_unsupported(message: dict[str, object], field: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        normalize_messages([message])
    assert caught.value.field == field
    assert caught.value.code == "unsupported"
