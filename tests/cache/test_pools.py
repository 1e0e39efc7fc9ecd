"""Blocks become free when references and fences have both ended, in any order, and never before."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flare.cache import FencedPool, PagePool, RowPool, SlotPool
from flare.contract import Capacities

CAPACITIES = Capacities(
    concurrency=3,
    context=32,
    pages=9,
    snapshot_rows=2,
    decode_lanes=(4,),
    prefill_tokens=(8,),
    stop_token_ids=1,
    logit_bias=0,
    logprobs=0,
    verification_width=4,
)


def test_allocation_is_all_or_nothing_and_skips_the_null_page():
    pool = PagePool(pages=6, page_tokens=4)
    assert pool.total == pool.free == 5
    assert pool.allocate(6) is None
    assert pool.free == 5
    assert sorted(pool.allocate(5)) == [1, 2, 3, 4, 5]
    assert pool.allocate(1) is None
    assert pool.allocate(0) == ()


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_pages_for_rounds_up(tokens, pages):
    assert PagePool(pages=6, page_tokens=4).pages_for(tokens) == pages


def test_a_released_block_waits_for_its_last_frame():
    pool = FencedPool(first=1, count=2)
    blocks = pool.allocate(2)
    pool.retire(3)
    pool.release(blocks, last_frame=5)
    assert (pool.free, pool.fenced) == (0, 2)
    pool.retire(4)
    assert pool.free == 0
    pool.retire(5)
    assert (pool.free, pool.fenced) == (2, 0)


def test_the_latest_fence_of_any_holder_counts():
    pool = FencedPool(first=1, count=1)
    blocks = pool.allocate(1)
    pool.retain(blocks)
    pool.release(blocks, last_frame=9)
    pool.release(blocks, last_frame=2)
    pool.retire(8)
    assert pool.free == 0
    pool.retire(9)
    assert pool.free == 1


def test_a_fence_does_not_outlive_its_tenant():
    pool = FencedPool(first=1, count=1)
    pool.release(pool.allocate(1), last_frame=9)
    pool.retire(9)
    pool.release(pool.allocate(1), last_frame=0)
    assert pool.free == 1


def test_misuse_is_a_bug():
    pool = FencedPool(first=1, count=2)
    (block,) = pool.allocate(1)
    pool.release((block,), 0)
    with pytest.raises(AssertionError, match="more often"):
        pool.release((block,), 0)
    with pytest.raises(AssertionError, match="not held"):
        pool.retain((block,))
    pool.retire(4)
    with pytest.raises(AssertionError, match="ended after"):
        pool.retire(3)


def test_slots_carry_rows_and_fresh_epochs():
    pool = SlotPool(CAPACITIES)
    slots = [pool.take() for _ in range(3)]
    assert sorted((slot.index, slot.row) for slot in slots) == [(0, 1), (1, 5), (2, 9)]
    assert pool.take() is None
    pool.release((1,), last_frame=0)
    again = pool.take()
    before = next(slot for slot in slots if slot.index == 1)
    assert (again.index, again.row) == (before.index, before.row)
    assert again.epoch != before.epoch


def test_snapshot_rows_lie_behind_the_live_rows():
    pool = RowPool(CAPACITIES)
    assert sorted(pool.allocate(2)) == [13, 14]
    assert CAPACITIES.rows == 15


class PoolModel(RuleBasedStateMachine):
    """Against the definition: free = no references and every named frame retired."""

    def __init__(self):
        super().__init__()
        self.pool = FencedPool(first=1, count=6)
        self.pool.on_free = self.check_freed
        self.holders: dict[int, int] = {}
        self.fences: dict[int, int] = {}
        self.retired = 0

    def check_freed(self, blocks):
        for block in blocks:
            assert self.holders.get(block, 0) == 0
            assert self.fences[block] <= self.retired

    @rule(count=st.integers(0, 7))
    def allocate(self, count):
        blocks = self.pool.allocate(count)
        assert (blocks is None) == (count > 6 - len(self.busy()))
        for block in blocks or ():
            assert block not in self.busy()
            self.holders[block], self.fences[block] = 1, 0

    @precondition(lambda self: any(self.holders.values()))
    @rule(data=st.data(), ahead=st.integers(-2, 3), share=st.booleans())
    def share_or_release(self, data, ahead, share):
        block = data.draw(st.sampled_from([b for b, count in self.holders.items() if count]))
        if share:
            self.holders[block] += 1
            self.pool.retain((block,))
        else:
            self.holders[block] -= 1
            self.fences[block] = max(self.fences[block], self.retired + ahead)
            self.pool.release((block,), self.retired + ahead)

    @rule(frames=st.integers(0, 3))
    def retire(self, frames):
        self.retired += frames
        self.pool.retire(self.retired)

    def busy(self):
        held = {block for block, count in self.holders.items() if count}
        return held | {block for block, fence in self.fences.items() if fence > self.retired}

    @invariant()
    def counts_agree(self):
        assert self.pool.free == 6 - len(self.busy())


PoolModel.TestCase.settings = settings(max_examples=60, deadline=None)
TestPoolModel = PoolModel.TestCase
