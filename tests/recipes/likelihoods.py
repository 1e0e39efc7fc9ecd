"""What Transformers' model finds likely, and where rounding decides about its experts and groups.

A model that chooses the best of its experts, or of groups of tokens, jumps where two scores meet: the last
bits, which depend on how a text was divided, then decide which of two values it gives. So a value that is not
the reference's must be the one that the reference gives when a choice that was measured to be that narrow
falls the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flare.device.direct_images import EncodableImage
from flare.testing.image_forcing import canonical_inputs
from flare.testing.teacher_forcing import largest

TIE = 2e-6
"""Between the last that is chosen and the first that is not, in parts of a score: a few roundings of FP32."""

Choice = tuple[int, int]
"""The number of a call that chooses, and the row in it."""


class Choices(TorchFunctionMode):
    """Notes which choices are narrow, with their tokens, and lets those to `turn` fall the other way. Experts
    are chosen for all tokens at once, and groups are too, or for one token after the other, from the first on
    that completes a group of `group`."""

    def __init__(self, tokens: int, group: int, turn: frozenset[Choice] = frozenset()) -> None:
        super().__init__()
        self.narrow: dict[Choice, int] = {}
        self._turn = turn
        self._calls = self._groupings = 0
        self._first, self._period = group - 1, max(tokens - group + 1, 1)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function not in (torch.topk, torch.Tensor.topk):
            return result
        scores, count = args[0], args[1] if len(args) > 1 else (kwargs or {})["k"]
        token = 0
        if scores.dim() == 1:
            token = self._first + self._groupings % self._period
            self._groupings += 1
        self._calls += 1
        if count == scores.shape[-1]:
            return result
        rows = scores.view(-1, scores.shape[-1])
        best = rows.sort(dim=1, descending=True)
        margins = (1 - best.values[:, count] / best.values[:, count - 1]).nan_to_num(0.0)
        for row in (margins < TIE).nonzero().flatten().tolist():
            self.narrow[self._calls, row] = token + row
        values, indices = (part.clone() for part in result)
        for row in range(len(rows)) if self._turn else ():
            if (self._calls, row) in self._turn:
                last = values.view(len(rows), -1)[row].argmin()
                values.view(len(rows), -1)[row, last] = best.values[row, count]
                indices.view(len(rows), -1)[row, last] = best.indices[row, count]
        return torch.return_types.topk((values, indices))


class Likelihoods:
    """Log-probabilities of `reference`, Transformers' model of texts with images, with groups of `group`."""

    def __init__(self, reference: nn.Module, group: int) -> None:
        self._reference, self._group = reference, group

    def difference(
        self, text: Sequence[int], images: Sequence[EncodableImage], found: Sequence[float], bound: float
    ) -> tuple[float, int]:
        """The largest difference between `found`, of the last tokens of `text`, and the reference, and how
        many narrow choices had to fall the other way for it to be within `bound`."""
        given, turned = torch.tensor(found), frozenset[Choice]()
        wanted, narrow = self.of(text, images, len(found))
        while (bad := _first_above(wanted - given, bound)) is not None:
            ties = [c for c, token in narrow.items() if token < len(text) - len(found) + bad]
            for choice in set(ties) - turned:
                other, after = self.of(text, images, len(found), turned | {choice})
                worse = _first_above(other - given, bound)
                if worse is None or worse > bad:
                    turned, wanted, narrow = turned | {choice}, other, narrow | after
                    break
            else:
                break
        return largest(wanted - given), len(turned)

    @torch.inference_mode()
    def of(
        self,
        text: Sequence[int],
        images: Sequence[EncodableImage],
        count: int,
        turn: frozenset[Choice] = frozenset(),
    ) -> tuple[Tensor, dict[Choice, int]]:
        """The log-probabilities [count] of the last tokens of `text`, and the narrow choices with the token
        of each, when those to `turn` fall the other way."""
        with Choices(len(text), self._group, turn) as choices:
            logits = self._reference(**canonical_inputs(text, images), use_cache=False).logits[0]
        drawn = torch.tensor(text[-count:])[:, None]
        likely = logits[-count - 1 : -1].float().log_softmax(-1).gather(1, drawn)[:, 0]
        return likely, choices.narrow


def _first_above(differences: Tensor, bound: float) -> int | None:
    above = (differences.abs().nan_to_num(float("inf")) >= bound).nonzero()
    return int(above[0]) if len(above) else None
