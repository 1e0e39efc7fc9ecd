"""What a core can never serve, refused at submission."""

from __future__ import annotations

from flare.contract import CompletionField, PreparedContract, Program, ProgramKind, ValueSource
from flare.scheduler.images import Images
from flare.scheduler.refusal import Refusal
from flare.scheduler.request import RequestSpec


class Limits:
    """Bounds of one core, from its contract."""

    def __init__(self, contract: PreparedContract) -> None:
        self._capacities = contract.capacities
        self._vocab_size = contract.frontend.vocab_size
        self._images = Images(contract)
        sampling = [
            program
            for kind in (ProgramKind.PREFILL, ProgramKind.DECODE, ProgramKind.SPECULATIVE)
            for program in contract.of_kind(kind)
        ]
        self._reports_logprobs = all(
            CompletionField.LOGPROBS in {binding.field for binding in program.completion}
            for program in sampling
        )
        drawing = [*sampling, *contract.of_kind(ProgramKind.RESUME)]
        self._takes_masks = all(_takes(program, ValueSource.GRAMMAR_MASK) for program in drawing)
        self._takes_min_tokens = all(
            _takes(program, ValueSource.MIN_TOKENS) for program in contract.of_kind(ProgramKind.START)
        )

    def check(self, spec: RequestSpec) -> Refusal | None:
        """Why the core can never serve `spec`, or None."""
        capacities = self._capacities
        if not spec.prompt:
            return Refusal("invalid_request", "the prompt has no tokens")
        if spec.max_tokens < 1:
            return Refusal("invalid_request", f"max_tokens must be at least 1, got {spec.max_tokens}")
        if len(spec.prompt) >= capacities.context:
            return Refusal(
                "context_exceeded",
                f"the prompt has {len(spec.prompt)} tokens; the context holds {capacities.context}, "
                "prompt and output together",
            )
        if min(spec.prompt) < 0 or max(spec.prompt) >= self._vocab_size:
            return Refusal("invalid_request", f"prompt tokens must lie in 0..{self._vocab_size - 1}")
        if refusal := self._images.refusal(spec.images, len(spec.prompt)):
            return refusal
        if spec.min_tokens and not self._takes_min_tokens:
            return Refusal("invalid_request", "this core does not take min_tokens")
        if spec.grammar and not self._takes_masks:
            return Refusal(
                "invalid_request",
                "this core takes no structured output: its programs have no masks; prepare it again",
            )
        if spec.logprobs is not None and not self._reports_logprobs:
            return Refusal("invalid_request", "this core does not report log-probabilities")
        for what, have, limit in (
            ("stop tokens", len(spec.stop_token_ids), capacities.stop_token_ids),
            ("logit biases", len(spec.sampling.logit_bias), capacities.logit_bias),
            ("alternatives per token", spec.logprobs or 0, capacities.logprobs),
        ):
            if have > limit:
                return Refusal("capacity_exceeded", f"{have} {what} requested, this core takes {limit}")
        return None


def _takes(program: Program, source: ValueSource) -> bool:
    return any(binding.source is source for binding in program.bindings)
