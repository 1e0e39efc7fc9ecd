"""Stop strings: the same result however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flare.frontend import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(piece) for piece in pieces)
    return shown + matcher.flush(), matcher.matched


def oracle(stops: list[str], text: str) -> tuple[str, str | None]:
    """The definition: the shortest prefix of the text that ends with a stop string, without the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


@given(STOPS, st.text("abc", max_size=24), st.data())
def test_any_split_equals_the_definition(stops: list[str], text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert run(stops, pieces) == oracle(stops, text)


def test_every_pair_of_cuts() -> None:
    stops, text = ["</s>", "<stop>", "s><"], "one <s two</s <stop> three</s>"
    expected = oracle(stops, text)

    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert run(stops, [text[:first], text[first:second], text[second:]]) == expected


@given(STOPS, st.text("abc", max_size=24))
def test_nothing_is_held_without_need(stops: list[str], text: str) -> None:
    """What is held is exactly the longest tail that may still become a stop string."""
    matcher, shown = StopMatcher(stops), ""
    for length, character in enumerate(text, start=1):
        shown += matcher.feed(character)
        if matcher.matched:
            return
        tails = [text[start:length] for start in range(length + 1)]
        held = next(tail for tail in tails if any(stop.startswith(tail) for stop in [*stops, ""]))
        assert shown + held == text[:length]


@pytest.mark.parametrize(
    ("stops", "text", "shown", "matched"),
    [
        (["STOP"], "a STOP b STOP", "a ", "STOP"),
        (["abcd", "bc"], "xabcd", "xa", "bc"),
        (["bc", "abc"], "xabcd", "x", "abc"),
        (["\n\n"], "\n", "\n", None),
        (["aab"], "aaab", "a", "aab"),
        (["a"], "a", "", "a"),
    ],
)
def test_cases(stops: list[str], text: str, shown: str, matched: str | None) -> None:
    assert run(stops, list(text)) == run(stops, [text]) == (shown, matched)
