"""Plausible mistakes in keeping and continuing state, one patch each. None of them may survive the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from flare.cache import CheckpointTree, FencedPool, PrefixIdentity
from flare.cache.eviction import EvictionOrder
from flare.cache.slots import SlotPool
from flare.contract import ValueSource
from flare.engine import packing
from flare.scheduler import Scheduler
from flare.scheduler.request import Request
from flare.scheduler.residency import Residency
from flare.scheduler.steps import Steps

Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, Plant] = {}


def fault(plant: Plant) -> Plant:
    """Register a patch under its name."""
    FAULTS[plant.__name__] = plant
    return plant


def _packed(patch: pytest.MonkeyPatch, source: ValueSource, change: Callable) -> None:
    """Let `change(view, plan)` alter what is uploaded for `source`."""
    pack = packing._PACKERS[source]

    def changed(view, plan):
        pack(view, plan)
        change(view, plan)

    patch.setitem(packing._PACKERS, source, changed)


@fault
def skip_the_tail_copy(patch):
    def without_page(view, plan):
        view[0] = -1

    _packed(patch, ValueSource.SOURCE_PAGE, without_page)


@fault
def skip_the_row_copy(patch):
    """Restore and snapshot copy the null row onto itself."""

    def null(view, plan):
        view[0] = 0

    _packed(patch, ValueSource.SOURCE_ROW, null)
    _packed(patch, ValueSource.DESTINATION_ROW, null)


@fault
def restore_another_snapshot(patch):
    restored = Steps._restored

    def other(steps, request):
        step, rows = restored(steps, request), steps._residency.rows
        for lane in step.lanes:
            row = rows._first + (lane.transfer.source_row - rows._first + 1) % rows.total
            lane.transfer = replace(lane.transfer, source_row=row)
        return step

    patch.setattr(Steps, "_restored", other)


@fault
def skip_the_restore(patch):
    """The device is told how far the history goes and nothing is copied."""

    def none(view, plan):
        view[0] = -1

    _packed(patch, ValueSource.SOURCE_ROW, lambda view, plan: view[0] and none(view, plan))
    _packed(patch, ValueSource.SOURCE_PAGE, none)


@fault
def off_by_one_at_a_page_end(patch):
    """A page that lacks its last token is published as complete."""
    publish = Residency.publish

    def early(residency, capture, frame):
        page_tokens = residency.pages.page_tokens
        if capture.tokens % page_tokens == page_tokens - 1 and not capture.last:
            capture = replace(capture, tokens=capture.tokens + 1)
            if capture.tokens > len(capture.request.identity):
                residency.abandon(capture, frame)
                return
        publish(residency, capture, frame)

    patch.setattr(Residency, "publish", early)


@fault
def capture_the_pending_token(patch):
    """The endpoint counts the token that was drawn and not consumed."""
    reserve = Residency.reserve_snapshot

    def one_more(residency, request, tokens, last):
        capture = reserve(residency, request, tokens, last)
        # Only where the page arithmetic still fits, so that nothing but the content is wrong.
        fits = tokens + 1 <= len(request.identity) and (tokens + 1) % residency.pages.page_tokens > 1
        return replace(capture, tokens=tokens + 1) if capture is not None and fits else capture

    patch.setattr(Residency, "reserve_snapshot", one_more)


@fault
def snapshot_under_frames_in_flight(patch):
    in_flight = Scheduler.in_flight.fget

    def plan(scheduler, original=Scheduler.plan):
        due = scheduler._capture_due()
        if due is not None and in_flight(scheduler) == 1 and not scheduler._exclusive:
            return scheduler._plan_capture(due)
        return original(scheduler)

    patch.setattr(Scheduler, "plan", plan)


@fault
def reuse_before_the_fence(patch):
    release = FencedPool.release
    patch.setattr(FencedPool, "release", lambda pool, blocks, last_frame: release(pool, blocks, 0))

    def depart(scheduler, request):  # without waiting for the frames in flight
        scheduler._leaving.append(request)
        scheduler._leave(request)

    patch.setattr(Scheduler, "_depart", depart)


@fault
def hand_a_page_out_twice(patch):
    allocate = FencedPool.allocate

    def twice(pool, count):
        blocks = allocate(pool, count)
        if blocks and count > 1:
            pool._free.append(blocks[-1])
        return blocks

    patch.setattr(FencedPool, "allocate", twice)


@fault
def wrong_parent_after_thinning(patch):
    inherit = CheckpointTree._inherit

    def orphaned(tree, child, removed):
        pages = child.pages
        inherit(tree, child, removed)
        child.pages = pages  # the ancestor's pages are forgotten

    patch.setattr(CheckpointTree, "_inherit", orphaned)


@fault
def evict_what_is_pinned(patch):
    update = EvictionOrder.update

    def blind(order, checkpoint):
        pins, checkpoint.pins = checkpoint.pins, 0
        update(order, checkpoint)
        checkpoint.pins = pins

    patch.setattr(EvictionOrder, "update", blind)


@fault
def ignore_the_last_token_of_a_tail(patch):
    key = PrefixIdentity.key

    def short(identity, length):
        digest, tail = key(identity, length)
        return digest, tail[:-4] + b"????" if tail else tail

    patch.setattr(PrefixIdentity, "key", short)


@fault
def match_by_length_alone(patch):
    patch.setattr(
        PrefixIdentity, "key", lambda identity, length: (identity.digest(0), length.to_bytes(4, "little"))
    )


@fault
def share_pages_out_of_order(patch):
    take = Residency._take_pages

    def swapped(residency, request, base):
        taken = take(residency, request, base)
        if taken and request.shared > 1:
            shared = request.pages[: request.shared]
            request.pages[: request.shared] = shared[::-1]
        return taken

    patch.setattr(Residency, "_take_pages", swapped)


@fault
def lose_a_grown_page(patch):
    _packed(patch, ValueSource.PAGE_UPDATES, lambda view, plan: view.fill(-1))


@fault
def append_a_page_one_too_far(patch):
    def shifted(view, plan):
        view[:, 0] += view[:, 0] >= 0

    _packed(patch, ValueSource.PAGE_UPDATES, shifted)


@fault
def count_output_as_prompt_after_preemption(patch):
    _packed(patch, ValueSource.OUTPUT_LENGTH, lambda view, plan: view.fill(0))


@fault
def count_a_prompt_token_twice(patch):
    def doubled(view, plan):
        if len(plan.lanes[0].request.tokens) < len(view):
            view[plan.lanes[0].request.input_length] = view[0]

    _packed(patch, ValueSource.PROMPT_TOKENS, doubled)

    def longer(view, plan):
        view[0] += 1

    _packed(patch, ValueSource.PROMPT_LENGTH, longer)


@fault
def repeat_the_random_stream_after_preemption(patch):
    patch.setattr(packing, "continued_seed", lambda seed, generated: seed)


@fault
def restart_the_output_budget_after_preemption(patch):
    def whole(view, plan):
        view[0] = plan.lanes[0].request.max_tokens

    _packed(patch, ValueSource.MAX_TOKENS, whole)


@fault
def forget_output_at_preemption(patch):
    reset = Request.reset

    def forgetful(request):
        reset(request)
        request.input_length = request.prompt_length

    patch.setattr(Request, "reset", forgetful)


@fault
def never_let_a_checkpoint_go(patch):
    patch.setattr(Residency, "_unpin", lambda residency, request: setattr(request, "base", None))


@fault
def share_one_live_row(patch):
    take = SlotPool.take

    def shared(pool):
        slot = take(pool)
        return slot and type(slot)(index=slot.index, epoch=slot.epoch, row=1)

    patch.setattr(SlotPool, "take", shared)


@fault
def restore_the_tail_from_itself(patch):
    def same(view, plan):
        transfer = plan.lanes[0].transfer
        if transfer is not None and transfer.source_page >= 0:
            view[0] = transfer.destination_page

    _packed(patch, ValueSource.SOURCE_PAGE, same)
