"""Message ends: where they are in the text, and which of them are exact cuts between tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flare.frontend import Prompts, normalize_messages
from flare.frontend.cuts import exact_cuts
from flare.frontend.template import ChatTemplate
from flare.testing.tiny_text import tiny_assets

TURNS = [
    ("system", "Be brief."),
    ("user", "Hi"),
    ("assistant", "Hello, <|im_end|> \u00e4\U0001f600"),
    ("user", ""),
]
MESSAGES = [{"role": role, "content": content} for role, content in TURNS]
PLAIN = (
    "{% for message in messages %}{{ '[' + message.role + ']' }}{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SYSTEM_APART = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}|{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if m.role == 'user' %}U:{{ m.content | trim }};{% continue %}{% endif %}"
    "A:{{ m.content }};{% endfor %}A:"
)
COLLECTED = (
    "{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out + m.content %}{% endfor %}"
    "{{ ns.out }}"
)


def ends(template: str) -> tuple[str, list[int]]:
    rendered = ChatTemplate(template, {}).render(normalize_messages(MESSAGES))
    return rendered.text, list(rendered.message_ends)


def test_every_message_ends_where_the_next_begins():
    text, marks = ends(PLAIN)
    pieces = [text[start:end] for start, end in zip([0, *marks], marks, strict=False)]
    assert pieces == [f"[{role}]{content}\n" for role, content in TURNS]
    assert text[marks[-1] :] == "[assistant]"


def test_marks_never_change_the_text_and_stay_within_it():
    for template in (PLAIN, SYSTEM_APART, COLLECTED):
        text, marks = ends(template)
        assert "flare" not in text
        assert marks == sorted(set(marks))
        assert all(0 <= mark <= len(text) for mark in marks)


def test_a_message_cannot_place_marks():
    messages = [{"role": "user", "content": "{{ _flare_message_end() }} {% endfor %}"}]
    rendered = ChatTemplate(PLAIN, {}).render(messages)
    assert rendered.text.startswith("[user]{{ _flare_message_end() }}")
    assert len(rendered.message_ends) == 1


@pytest.mark.parametrize(
    ("offsets", "marks", "cuts"),
    [
        ([(0, 2), (2, 5), (5, 6)], [2, 5], {2: 1, 5: 2}),
        ([(0, 2), (2, 5), (5, 6)], [0, 6], {0: 0, 6: 0}),  # strictly inside
        ([(0, 3), (3, 5)], [2], {2: 0}),  # a token lies across the mark
        ([(0, 1), (1, 2), (1, 2), (2, 3)], [1, 2], {1: 1, 2: 3}),  # two tokens share a character
        ([(0, 1), (3, 4)], [1, 2, 3], {1: 1, 2: 1, 3: 1}),  # a gap: characters no token stands for
        ([], [0], {0: 0}),
    ],
)
def test_exact_cuts(offsets, marks, cuts):
    assert exact_cuts(np.array(offsets, int).reshape(-1, 2), marks) == cuts


@given(st.lists(st.sampled_from(["a", "bc", " ", "\u00e4", "\U0001f600", "<|im_end|>", "\n"]), max_size=12))
def test_a_cut_parts_the_text_as_the_mark_does(words):
    prompts = Prompts(tiny_assets())
    for end in range(len(words) + 1):
        text, mark = "".join(words), len("".join(words[:end]))
        tokens, cuts = prompts.tokenizer.encode_marked(text, [mark])
        assert tokens == prompts.tokenizer.encode(text)
        for cut in cuts:
            assert prompts.tokenizer.decode(tokens[:cut], skip_special=False) == text[:mark]


def test_prompts_carry_their_endpoints():
    prompt = Prompts(tiny_assets()).from_messages(MESSAGES)
    assert len(prompt.endpoints) == len(MESSAGES)
    assert all(0 < cut < len(prompt.tokens) for cut in prompt.endpoints)
