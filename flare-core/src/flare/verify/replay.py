"""The oracle prompt: drawn freely when it is recorded, replayed with its own tokens when it is compared."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import Oracle, ProgramKind
from flare.device.base import Device
from flare.device.direct import DirectRequest, DirectRunner, Drawn
from flare.errors import DeviceError


def draw(
    runner: DirectRunner, prompt: Sequence[int], *, seed: int, temperature: float, count: int
) -> list[Drawn]:
    """Up to `count` tokens: one prefill, then the smallest decode program. Pages are dealt on. Raises
    DeviceError when the model's logits are not finite."""
    request = _start(runner, prompt, seed, temperature, count)
    _prefill(runner, request, prompt)
    while len(request.draws) < count:
        _decode(runner, request)
    return request.draws


def replay(device: Device, oracle: Oracle) -> list[Drawn]:
    """What this device draws at every position of the oracle, the recorded tokens before it.

    As long as the drawn tokens are the recorded ones, decoding just goes on. Behind one that is not, the
    recorded text is prefilled anew: a token that falls the other way is seen once and changes nothing else.
    Raises DeviceError when the model's logits are not finite.
    """
    runner = DirectRunner(device)
    draws: list[Drawn] = []
    while len(draws) < len(oracle.tokens):
        runner.reuse_pages()
        text = (*oracle.prompt, *oracle.tokens[: len(draws)])
        count = len(oracle.tokens) - len(draws)
        request = _start(runner, text, oracle.seed, oracle.temperature, count)
        _prefill(runner, request, text)
        draws.append(request.draws[-1])
        while len(draws) < len(oracle.tokens) and draws[-1].token == oracle.tokens[len(draws) - 1]:
            _decode(runner, request)
            draws.append(request.draws[-1])
    return draws


def _start(
    runner: DirectRunner, prompt: Sequence[int], seed: int, temperature: float, count: int
) -> DirectRequest:
    alternatives = runner.contract.capacities.logprobs
    return runner.start(
        0, prompt, seed=seed, max_tokens=count, temperature=temperature, logprobs=alternatives
    )


def _prefill(runner: DirectRunner, request: DirectRequest, text: Sequence[int]) -> None:
    _check(runner.prefill_all(request, text), request)


def _decode(runner: DirectRunner, request: DirectRequest) -> None:
    smallest = runner.contract.of_kind(ProgramKind.DECODE)[0]
    idle = [None] * (smallest.lanes - 1)
    _check(runner.decode([request, *idle], smallest.name)[0], request)


def _check(drawn: list[int], request: DirectRequest) -> None:
    if not drawn:
        raise DeviceError(f"no token was drawn behind {request.consumed} tokens: the logits are not finite")
