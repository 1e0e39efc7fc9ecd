"""Levels of effort, brought to those that a template takes."""

from __future__ import annotations

import pytest

from flare.frontend import Prompts
from flare.frontend.efforts import LEVELS, nearest_effort
from flare.testing.tiny_text import tiny_assets

THREE = (
    "{% if reasoning_effort is defined and reasoning_effort not in ['low', 'medium', 'xhigh'] %}"
    "{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}"
)


@pytest.mark.parametrize(
    ("asked", "told"),
    [("minimal", "low"), ("low", "low"), ("high", "xhigh"), ("max", "xhigh"), ("deep", "deep")],
)
def test_a_level_is_the_nearest_that_is_taken(asked: str, told: str) -> None:
    assert Prompts(tiny_assets(template=THREE)).effort(asked) == told


def test_a_template_that_takes_all_or_none_is_told_what_was_asked() -> None:
    for template in ("x", "{{ raise_exception('no') }}"):
        prompts = Prompts(tiny_assets(template=template))
        assert [prompts.effort(level) for level in LEVELS] == list(LEVELS)
    assert nearest_effort("high", ()) == "high"
