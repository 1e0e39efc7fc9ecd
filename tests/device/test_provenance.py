"""What a core says about its origin is for people: loading and serving never look at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sealed_provenance import Sealed

from flare.contract import PreparedContract
from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.engine.loop import Engine
from flare.engine.messages import Event, Sampling, Submit, Tokens


def serve(contract: PreparedContract, reader: CoreReader) -> list[Event]:
    events: list[Event] = []
    engine = Engine(load_device(contract, reader), events.append)
    # Measured costs would choose other chunks on a busy machine.
    engine.scheduler.costs.observe = lambda name, elapsed_us, depth=0: None  # type: ignore[method-assign]
    for index in range(3):
        engine.submit(
            Submit(
                request_id=str(index),
                prompt=tuple(range(20, 30 + 20 * index)),
                sampling=Sampling(temperature=0.7, seed=index),
                max_tokens=6,
            )
        )
    while engine.step():
        pass
    engine.close()
    return events


def test_other_names_change_nothing_and_are_not_read(tiny_core: Path) -> None:
    reader = CoreReader(tiny_core)
    contract = read_contract(reader)
    sealed = Sealed.model_construct()
    with pytest.raises(AssertionError, match=r"provenance\.model"):
        _ = sealed.model
    renamed = contract.provenance.model_copy(
        update={"model": contract.provenance.recipe, "recipe": "another", "oracle": None}
    )
    first, *others = (
        serve(contract.model_copy(update={"provenance": provenance}), reader)
        for provenance in (contract.provenance, renamed, sealed)
    )
    assert sum(len(event.tokens) for event in first if isinstance(event, Tokens)) == 18
    for other in others:
        assert other == first
