"""Every program of a tiny core run by hand: what a device draws, by program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.contract import ProgramKind, ValueSource
from flare.device.base import Device
from flare.device.direct import DirectRequest, DirectRunner, Drawn

S = ValueSource
STEPS = 6
HOLD = {S.MIN_TOKENS: [200]}
LENGTH = 40  # inside a page of 16 tokens


def drive(device: Device) -> dict[str, list[list[Any]]]:
    """Name of a step -> what was drawn in it: token, log-probability, alternatives."""
    runner = DirectRunner(device)
    drawn = {}
    for program in runner.contract.of_kind(ProgramKind.PREFILL):
        for count in (program.tokens, program.tokens // 2 + 1):
            request = _begun(runner, 0, count, program.name)
            drawn[f"{program.name} with {count}"] = _listed(request.draws)
    for program in runner.contract.of_kind(ProgramKind.DECODE):
        for idle in {0, program.lanes // 2}:
            drawn[f"{program.name} with {idle} idle"] = _decoded(runner, program.name, program.lanes, idle)
    return drawn | _restored(runner)


def _prompt(count: int, first: int = 30) -> list[int]:
    return [first + 7 * index % 200 for index in range(count)]


def _begun(runner: DirectRunner, slot: int, count: int, name: str, first: int = 30) -> DirectRequest:
    if slot == 0:
        runner.reuse_pages()
    prompt = _prompt(count, first)
    request = runner.start(slot, prompt, seed=5 + slot, logprobs=20, extra=HOLD)
    runner.prefill(request, prompt, sample=True, name=name)
    return request


def _decoded(runner: DirectRunner, name: str, lanes: int, idle: int) -> list[list[Any]]:
    prefill = runner.contract.of_kind(ProgramKind.PREFILL)[-1]
    requests: list[DirectRequest | None] = [
        _begun(runner, slot, 5 + 11 * slot, prefill.name, 30 + slot) for slot in range(lanes - idle)
    ]
    for _ in range(STEPS):
        runner.decode([*([None] * idle), *requests], name)
    return [entry for request in requests if request for entry in _listed(request.draws)]


def _restored(runner: DirectRunner) -> dict[str, list[list[Any]]]:
    """A request, and one that continues from its snapshot in another slot."""
    contract = runner.contract
    live, shared = contract.capacities.live_row, LENGTH // contract.page.page_tokens
    kept_row, kept_page = live(contract.capacities.concurrency - 1) + 1, contract.capacities.pages - 1
    first = _begun(runner, 0, LENGTH, contract.of_kind(ProgramKind.PREFILL)[-1].name)
    _transfer(runner, "snapshot", (live(0), first.pages[shared]), (kept_row, kept_page))
    for _ in range(STEPS):
        runner.decode([first], "decode.1")
    second = runner.start(3, _prompt(LENGTH), seed=5, logprobs=20, extra=HOLD)
    table = [*first.pages[:shared], *second.pages[shared:]]
    second = runner.start(2, _prompt(LENGTH), seed=5, logprobs=20, extra={**HOLD, S.PAGE_TABLE_ROW: table})
    place = {S.LANE_SLOTS: [2], S.CONSUMED_COUNTS: [LENGTH]}
    _transfer(runner, "restore", (kept_row, kept_page), (live(2), table[shared]), place)
    second.consumed = LENGTH
    resumed = runner.run("resume", {S.LANE_SLOTS: [2], S.LIVE_ROWS: [live(2)]})
    runner._drawn(resumed, 0, second)
    for _ in range(STEPS):
        runner.decode([second], "decode.1")
    return {"undisturbed": _listed(first.draws), "restored": _listed(second.draws)}


def _transfer(
    runner: DirectRunner,
    name: str,
    source: tuple[int, int],
    target: tuple[int, int],
    slot: dict[ValueSource, object] | None = None,
) -> None:
    rows = {S.SOURCE_ROW: [source[0]], S.DESTINATION_ROW: [target[0]]}
    pages = {S.SOURCE_PAGE: [source[1]], S.DESTINATION_PAGE: [target[1]]}
    runner.run(name, {**rows, **pages, **(slot or {})})


def _listed(draws: Sequence[Drawn]) -> list[list[Any]]:
    return [[d.token, d.logprob, {str(token): value for token, value in d.top.items()}] for d in draws]
