"""Calibration: measures what each program costs on this machine, and records the oracle."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from flare.contract import Oracle, PreparedContract, Program, ProgramKind, ValueSource
from flare.device.base import Device
from flare.prepare.direct import DirectRunner

_REPEATS = 5
ORACLE_TOKENS = 16


def measure_costs(device: Device, *, advance: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Median microseconds of every prefill and decode program at full capacity, after a warm-up run."""
    costs: dict[str, float] = {}
    contract = device.contract
    for program in contract.programs:
        if program.kind in (ProgramKind.PREFILL, ProgramKind.DECODE):
            costs[program.name] = _median_cost(DirectRunner(device), program)
            advance()
    return costs


def _median_cost(runner: DirectRunner, program: Program) -> float:
    contract = runner.contract
    context = contract.capacities.context
    times: list[float] = []
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


def record_oracle(device: Device, prompt: Sequence[int], *, seed: int = 0) -> Oracle:
    """Draw tokens for `prompt` with the core's defaults at a low temperature."""
    contract: PreparedContract = device.contract
    temperature = contract.frontend.default_sampling.temperature
    runner = DirectRunner(device)
    count = min(ORACLE_TOKENS, contract.capacities.context - len(prompt))
    request = runner.start(0, prompt, seed=seed, max_tokens=count, temperature=temperature)
    runner.prefill_all(request, prompt)
    smallest = contract.of_kind(ProgramKind.DECODE)[0]
    idle = [None] * (smallest.lanes - 1)
    while len(request.tokens) < count:
        if not runner.decode([request, *idle], smallest.name)[0]:
            break  # the model ended its answer
    return Oracle(prompt=tuple(prompt), tokens=tuple(request.tokens), seed=seed, temperature=temperature)
