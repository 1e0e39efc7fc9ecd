"""System messages in front, between the others, and several of them, for templates of all kinds."""

from __future__ import annotations

import pytest

from flare.frontend import Prompts
from flare.testing.tiny_text import tiny_assets

ANYWHERE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
ONE_IN_FRONT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system is first') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
LEAVES_OUT = (
    "{% if messages[0].role == 'system' %}[system]{{ messages[0].content }}{% endif %}"
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)
NONE = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{% endfor %}x"

MESSAGES = [
    {"role": "system", "content": "A"},
    {"role": "developer", "content": [{"type": "text", "text": "B"}]},
    {"role": "user", "content": "C"},
    {"role": "system", "content": "D"},
    {"role": "assistant", "content": "E"},
]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (ANYWHERE, "[system]A[system]B[user]C[system]D[assistant]E"),
        (ONE_IN_FRONT, "[system]A\n\nB[user]C[user]D[assistant]E"),
        (LEAVES_OUT, "[system]A\n\nB[user]C[user]D[assistant]E"),
    ],
)
def test_every_message_is_in_the_prompt_and_in_its_place(template: str, text: str) -> None:
    assert Prompts(tiny_assets(template=template)).render(MESSAGES) == text


def test_a_turn_more_leaves_the_prompt_before_it_as_it_was() -> None:
    prompts = Prompts(tiny_assets(template=ONE_IN_FRONT))
    before = prompts.render(MESSAGES)
    more = [*MESSAGES, {"role": "system", "content": "F"}, {"role": "user", "content": "G"}]
    assert prompts.render(more).startswith(before)


def test_a_template_without_system_messages_says_so_itself() -> None:
    with pytest.raises(ValueError, match="does not take these messages: no"):
        Prompts(tiny_assets(template=NONE)).render(MESSAGES)
