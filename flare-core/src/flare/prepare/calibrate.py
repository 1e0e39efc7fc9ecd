"""Calibration: measures what each program costs on this machine, and records the oracle."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from flare.contract import DrawnPosition, Oracle, PreparedContract, Program, ProgramKind, ValueSource
from flare.device.base import Device
from flare.device.direct import DirectRunner, Drawn
from flare.verify.bounds import logprob_bound
from flare.verify.comparison import compare
from flare.verify.identity import conditions
from flare.verify.replay import draw

MEASURED_KINDS = (ProgramKind.PREFILL, ProgramKind.DECODE, ProgramKind.VISION)
_REPEATS = 5
ORACLE_TOKENS = 16


def measure_costs(device: Device, *, advance: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Median microseconds of every program of `MEASURED_KINDS` at full capacity, after a warm-up run."""
    costs: dict[str, float] = {}
    contract = device.contract
    for program in contract.programs:
        if program.kind in MEASURED_KINDS:
            costs[program.name] = _median_cost(DirectRunner(device), program)
            advance()
    return costs


def _median_cost(runner: DirectRunner, program: Program) -> float:
    contract = runner.contract
    context = contract.capacities.context
    times: list[float] = []
    if program.kind is ProgramKind.VISION:
        images = contract.frontend.images
        assert images is not None
        grid = (1, images.merge, program.tokens // images.merge)
        for _ in range(_REPEATS if program.tokens <= 1024 else 2):
            runner.run(program.name, {ValueSource.IMAGE_GRID: grid, ValueSource.FEATURE_OFFSET: [0]})
            times.append(runner.elapsed_us)
        return statistics.median(times[1:])
    if program.kind is ProgramKind.PREFILL:
        for _ in range(_REPEATS if program.tokens <= 128 else 3):
            runner.reuse_pages()
            request = runner.start(0, [1] * program.tokens)
            runner.prefill(request, [1] * program.tokens, sample=True, name=program.name)
            times.append(runner.elapsed_us)
        return statistics.median(times[1:] or times)
    lanes = min(program.lanes, contract.capacities.concurrency)
    affordable = (contract.capacities.pages - 1) // contract.pages_per_request
    requests = [
        runner.start(slot, [1], extra={ValueSource.MIN_TOKENS: [context]})
        for slot in range(min(lanes, affordable))
    ]
    size = contract.capacities.prefill_tokens[0]
    for request in requests:
        runner.prefill(request, [1], sample=True, name=f"prefill.{size}")
    padded = [*requests, *[None] * (program.lanes - len(requests))]
    for _ in range(min(2 * _REPEATS, context - 1)):
        runner.decode(padded, program.name)
        times.append(runner.elapsed_us)
    return statistics.median(times[1:] or times)


def record_oracle(
    device: Device, prompt: Sequence[int], *, seed: int = 0, input_noise: float = 0.0
) -> Oracle:
    """Draw tokens for `prompt` with the core's defaults, with what later comparisons need: the model's
    log-probabilities, how far they may differ elsewhere (`input_noise`: see `logprob_bound`), and whether two
    runs differ here."""
    contract: PreparedContract = device.contract
    temperature = contract.frontend.default_sampling.temperature
    count = min(ORACLE_TOKENS, contract.capacities.context - len(prompt))
    runner = DirectRunner(device)
    draws = draw(runner, prompt, seed=seed, temperature=temperature, count=count)
    if contract.capacities.pages <= 2 * contract.pages_per_request:
        runner.reuse_pages()
    again = compare(draws, draw(runner, prompt, seed=seed, temperature=temperature, count=count))
    positions = tuple(_position(drawn) for drawn in draws if drawn.logprob is not None)
    bound = logprob_bound(contract, draws, input_noise) if positions else None
    return Oracle(
        prompt=tuple(prompt),
        tokens=tuple(drawn.token for drawn in draws),
        seed=seed,
        temperature=temperature,
        positions=positions,
        bound=None if bound is None else bound.nats,
        bound_basis="" if bound is None else bound.basis,
        spread=math.inf if again.moved else again.largest,
        conditions=conditions(contract),
    )


def _position(drawn: Drawn) -> DrawnPosition:
    assert drawn.logprob is not None
    return DrawnPosition(
        logprob=drawn.logprob, top_ids=tuple(drawn.top), top_logprobs=tuple(drawn.top.values())
    )
