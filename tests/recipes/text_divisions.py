"""A text of a tiny model, divided, decoded and restored in every way, with the logits of Transformers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from snapshots import Snapshots

from flare.device.direct import DirectRequest
from flare.testing.teacher_forcing import Forced, largest, partition

BOUND = 1e-4
AFTER = 4
"""Tokens behind the text, so that there is a rest behind all of it."""


def check_in_one_piece(forced: Forced, length: int) -> None:
    """Also that the tokens that are likeliest are the same, where no two are as likely."""
    logits = forced.prefill_logits([], length)
    want = forced.want[:length]
    assert 0 < largest(logits - want) < BOUND
    best = want.topk(2).values
    sure = best[:, 0] - best[:, 1] > 2 * BOUND
    assert int(sure.sum()) > 0.9 * length
    assert torch.equal(logits.argmax(1)[sure], want.argmax(1)[sure])


def check_partitions(forced: Forced, length: int, seeds: Iterable[int] = range(30)) -> None:
    """Up to twelve random cuts."""
    for seed in seeds:
        cuts = partition(length, seed)
        assert forced.prefill(cuts, length) < BOUND, cuts


def check_cuts_and_restorations(forced: Forced, counts: Iterable[int], length: int) -> None:
    """Cut in two at each of `counts`. The rest gets the same bits behind a restored snapshot, of the live
    state of which nothing is left, as behind the state itself."""
    snapshots = Snapshots(forced)
    for count in counts:
        rest = (length - count) or AFTER
        forced.runner.reuse_pages()
        live = forced.start(0)
        assert forced.chunk(live, count) < BOUND, count
        snapshots.take(live)
        want = forced.chunk_logits(live, rest)
        assert largest(want - forced.want[count : count + rest]) < BOUND, count
        snapshots.wipe()
        assert torch.equal(forced.chunk_logits(snapshots.restore(2), rest), want), count


def check_restored_decoding(forced: Forced, counts: Iterable[int], steps: int = 5) -> None:
    """Steps behind a restored snapshot have the bits of those behind the state itself."""
    for count in counts:
        forced.runner.reuse_pages()
        snapshots, live = Snapshots(forced), forced.start(0)
        forced.chunk(live, count)
        snapshots.take(live)
        want = _decoded(forced, live, steps)
        worst = max(largest(one - forced.want[place]) for place, one in enumerate(want, count))
        assert worst < BOUND, count
        snapshots.wipe()
        assert all(map(torch.equal, _decoded(forced, snapshots.restore(2), steps), want)), count


def check_shortest(forced: Forced, length: int, steps: int = 12) -> None:
    """A prompt of `length` tokens is decoded on, in lanes of another order than its slots."""
    ids, want = forced.ids, forced.want
    try:
        forced.ids, forced.want = ids[: length + steps], want[: length + steps]
        requests = forced.fill_slots(length)
        assert 0 < forced.decode([requests[1], None, requests[0], requests[2]], length) < BOUND
    finally:
        forced.ids, forced.want = ids, want


def _decoded(forced: Forced, request: DirectRequest, count: int) -> list[torch.Tensor]:
    """The logits behind `count` further tokens of the text, one a step."""
    program, logits = forced.runner.programs["decode.1"], []
    # Where the device keeps the token that was drawn, the text's is put in its place.
    pending = forced.device.storage("state/pending").view(torch.int32)
    for position in range(request.consumed, request.consumed + count):
        pending[request.slot] = forced.ids[position]
        values = forced.runner.decode_values([request], [forced.ids[position]])
        logits.append(forced.device.probe(program.name, forced.runner.staging(program, values))["logits"][0])
        request.consumed = position + 1
    return logits
