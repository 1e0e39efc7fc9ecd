"""Packing of grammar masks: what each lane may draw next, as the engine's matchers say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.engine.constraints import Constraints
from flare.scheduler import Plan

View = NDArray[Any]
_EVERYTHING = np.int32(-1)


class GrammarMasks:
    """Packs GRAMMAR_MASK of one program, i32[L, words] or i32[L, W, words].

    A free lane admits everything. Its words are written once per view: only what a constrained lane wrote
    before is written again, so that a step without one costs nothing.
    """

    def __init__(self, constraints: Constraints | None) -> None:
        self._constraints = constraints
        self._written: dict[int, list[int]] = {}  # by view

    def __call__(self, view: View, plan: Plan) -> None:
        """Fill `view` for the lanes of `plan`."""
        before = self._written.get(id(view))
        if before is None:
            view[...] = _EVERYTHING
        else:
            for index in before:
                view[index] = _EVERYTHING
        written = self._written[id(view)] = []
        for index, lane in enumerate(plan.lanes):
            if lane.sample and lane.request.constrained:
                assert self._constraints is not None
                written.append(index)
                self._constraints.fill(lane, view[index])
