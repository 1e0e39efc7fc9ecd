"""Which endpoints of a prompt become checkpoints."""

import pytest

from flare.scheduler.captures import capture_budget, prefill_endpoints


@pytest.mark.parametrize(
    ("rows", "concurrency", "budget"), [(0, 4, 0), (1, 4, 1), (3, 4, 1), (8, 4, 2), (32, 4, 8), (400, 4, 8)]
)
def test_a_request_takes_its_share_of_the_snapshot_rows(rows, concurrency, budget):
    assert capture_budget(rows, concurrency) == budget


def endpoints(*boundaries: int, reused=0, prompt_length=100, max_tokens=9, budget=8, **options) -> list[int]:
    return prefill_endpoints(
        boundaries,
        reused=reused,
        prompt_length=prompt_length,
        max_tokens=max_tokens,
        budget=budget,
        **options,
    )


def test_all_messages_and_the_prompt_when_they_fit():
    assert endpoints(30, 10, 60, 60) == [10, 30, 60, 100]


def test_the_end_of_the_request_comes_first_then_the_prompts_then_messages():
    assert endpoints(30, budget=1) == []
    assert endpoints(30, budget=2) == [100]
    assert endpoints(30, budget=3) == [30, 100]
    assert endpoints(30, budget=0) == []


def test_a_single_output_token_shares_the_end_of_the_prompt():
    assert endpoints(30, max_tokens=1, budget=2) == [30]


def test_only_what_is_not_reused_is_captured():
    assert endpoints(10, 30, 60, reused=30) == [60, 100]
    assert endpoints(10, 30, reused=100) == []


def test_too_many_messages_are_spread_evenly_and_ties_go_to_the_earlier():
    assert endpoints(20, 30, 40, 60, 80, budget=4) == [30, 60, 100]
    assert endpoints(40, 60, budget=3) == [40, 100]


def test_messages_that_end_close_to_another_endpoint_are_left_out():
    # 33 is close to what is reused, 60 to 50, 98 to the end of the prompt.
    assert endpoints(33, 50, 60, 98, reused=30, spacing=16) == [50, 100]
    assert endpoints(84, spacing=16) == [84, 100]
    assert endpoints(85, spacing=16) == [100]


def test_a_long_message_before_a_short_last_one_is_captured():
    # Another short message may follow the long one: its end is where they branch.
    assert endpoints(85, 97, spacing=16) == [85, 100]
    assert endpoints(80, 85, 97, spacing=16) == [80, 100]


def test_texts_branch_at_the_last_message_where_answers_return_changed():
    assert endpoints(50, 97, spacing=16, answers_return_changed=True) == [50, 97, 100]
    assert endpoints(90, 97, spacing=16, answers_return_changed=True) == [90, 100]
