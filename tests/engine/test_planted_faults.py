"""The hash model and the harness notice mistakes: a planted fault fails a service that otherwise passes."""

import numpy as np
import pytest
from engine_harness import Harness, request
from faults import hand_a_page_out_twice, share_one_live_row

from flare.cache import FencedPool
from flare.contract import ValueSource
from flare.engine import packing
from flare.errors import ExecutionError
from flare.scheduler import Settings
from flare.testing.hash_model import HashModel

MODEL = HashModel(context=40, page_tokens=4, pages=21)


def serve() -> None:
    """Without checkpoints requests leave under frames in flight; with them they wait for their snapshot."""
    for prefix_caching in (False, True):
        serve_once(Settings(prefix_caching=prefix_caching))


def serve_once(settings: Settings) -> None:
    """Short and long prompts, a cancelled stream, more requests than slots, two frames in flight."""
    harness = Harness(MODEL, delay_s=lambda frame, program: 2e-4, settings=settings)
    try:
        for index in range(8):
            harness.submit(
                request(
                    f"r{index}", tuple(range(1 + index, 4 + 4 * index)), 28 if index == 1 else 7, seed=index
                )
            )
        while not (harness.output("r1") and "r1" in {live.id for live in harness.in_flight()}):
            harness.engine.step()
            assert harness.end("r1") is None
        harness.engine.cancel("r1")
        harness.run()
        harness.check()
    finally:
        harness.close()


def replace_packer(monkeypatch, source, packer):
    monkeypatch.setitem(packing._PACKERS, source, packer)


def reuse_before_the_fence(monkeypatch):
    release = FencedPool.release
    monkeypatch.setattr(FencedPool, "release", lambda pool, blocks, last_frame: release(pool, blocks, 0))


def point_the_last_page_to_the_null_page(monkeypatch):
    pack = packing._PACKERS[ValueSource.PAGE_TABLE_ROW]

    def swapped(view, plan):
        pack(view, plan)
        view[len(plan.lanes[0].request.pages) - 1] = 0

    replace_packer(monkeypatch, ValueSource.PAGE_TABLE_ROW, swapped)


def drop_the_last_chunk_token(monkeypatch):
    pack = packing._PACKERS[ValueSource.QUERY_START]

    def short(view, plan):
        pack(view, plan)
        view[1:] = np.maximum(view[1:] - 1, 0)

    replace_packer(monkeypatch, ValueSource.QUERY_START, short)


def shift_prompt_tokens(monkeypatch):
    pack = packing._PACKERS[ValueSource.PROMPT_TOKENS]

    def shifted(view, plan):
        pack(view, plan)
        view[:] = np.roll(view, 1)

    replace_packer(monkeypatch, ValueSource.PROMPT_TOKENS, shifted)


def one_staging_buffer_for_two_frames(monkeypatch):
    build = packing.UploadPacker.__init__

    def single(packer, contract, program, frames, *others):
        build(packer, contract, program, 1, *others)

    monkeypatch.setattr(packing.UploadPacker, "__init__", single)


def never_change_the_epoch_record(monkeypatch):
    replace_packer(monkeypatch, ValueSource.EPOCHS, lambda view, plan: view.fill(1))


def test_the_service_is_right_without_a_fault():
    serve()


@pytest.mark.parametrize(
    "plant",
    [
        reuse_before_the_fence,
        hand_a_page_out_twice,
        share_one_live_row,
        point_the_last_page_to_the_null_page,
        drop_the_last_chunk_token,
        shift_prompt_tokens,
        one_staging_buffer_for_two_frames,
        never_change_the_epoch_record,
    ],
)
def test_a_planted_fault_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, ExecutionError)):
        serve()
