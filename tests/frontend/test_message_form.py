"""What a template reads itself is found by asking it."""

from __future__ import annotations

import pytest

from flare.errors import RequestError
from flare.frontend import ChatTemplate, normalize_messages
from flare.frontend.message_form import MessageForm

EVERYONE = frozenset({"system", "user", "assistant", "tool"})
NOBODY: frozenset[str] = frozenset()

LIST = "{% for p in m.content %}{{ p.text }}{% endfor %}"
PARTS = "{% if m.content is string %}{{ m.content }}{% else %}" + LIST + "{% endif %}"


def loop(*body: str) -> str:
    return "".join(("{% for m in messages %}", *body, "{% endfor %}"))


@pytest.mark.parametrize(
    ("source", "roles"),
    [
        (loop("{{ m.role }}", PARTS), EVERYONE),
        (
            loop("{% if m.role == 'tool' %}{{ m.content }}{% else %}", PARTS, "{% endif %}"),
            EVERYONE - {"tool"},
        ),
        (loop("{{ m.content }}"), NOBODY),  # prints lists as Python does
        (loop("{{ m.content + '' }}"), NOBODY),  # fails on lists
        (
            loop("{{ m.content if m.content is string else m.content[0].text }}"),
            NOBODY,
        ),  # reads the first only
        (loop("{{ strftime_now('%f') }}", PARTS), EVERYONE),  # the clock goes on meanwhile
        (loop("{{ raise_exception('no') if m.role == 'system' }}", PARTS), EVERYONE - {"system"}),
        ("{{ raise_exception('never') }}", NOBODY),
    ],
)
def test_lists_of_texts_are_for_those_who_read_them(source: str, roles: frozenset[str]) -> None:
    assert ChatTemplate(source, {}).form.part_roles == roles


def test_lists_stay_or_are_joined() -> None:
    parts = [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": parts}]
    user, assistant = normalize_messages(messages, form=MessageForm(part_roles=frozenset({"user"})))
    assert user["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert assistant["content"] == "a\nb"


@pytest.mark.parametrize(
    ("source", "role"),
    [
        (loop("{{ m.role }}"), "system"),
        (loop("{{ 'Developer' if m.role == 'developer' else m.role }}"), "Developer"),
        (loop("{{ 'Leader' if m.role in ['developer', 'system'] else m.role }}"), "Leader"),
    ],
)
def test_a_developer_has_its_name_where_the_template_knows_it(source: str, role: str) -> None:
    template = ChatTemplate(source, {})
    messages = normalize_messages([{"role": "developer", "content": "x"}], form=template.form)
    assert template.render(messages).text == role


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_found_under_its_names(name: str) -> None:
    (message,) = normalize_messages([{"role": "assistant", "content": "a", name: "r"}])
    assert (message["reasoning_content"], message["thinking"]) == ("r", "r")
    (message,) = normalize_messages([{"role": "assistant", "content": "a", name: None}])
    assert message == {"role": "assistant", "content": "a"}
    with pytest.raises(RequestError) as caught:
        normalize_messages([{"role": "assistant", "content": "a", name: ["r"]}])
    assert caught.value.field == f"messages[0].{name}"


def test_an_assistant_may_think_or_call_and_say_nothing() -> None:
    (message,) = normalize_messages([{"role": "assistant", "content": None, "reasoning": "r"}])
    assert "content" not in message
    with pytest.raises(RequestError, match=r"messages\[0\].content must be a string"):
        normalize_messages([{"role": "assistant", "content": None, "reasoning": ""}])
