"""What the served core's frontend says about itself, for clients that show a person what may be asked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flare.contract import Frontend, TemplateKind
from flare.frontend import Prompts, SamplingParameters


def chat_facts(frontend: Frontend, prompts: Prompts) -> dict[str, Any] | None:
    """The shape ChatFacts; None for a core that serves completions only. A template that does not look at the
    effort of reasoning has none, although it would refuse none."""
    if frontend.template_kind is TemplateKind.NONE:
        return None
    variables = prompts.template_variables
    return {
        "images": frontend.images is not None,
        "tools": frontend.output.calls is not None,
        "reasoning": frontend.output.reasoning is not None,
        "efforts": list(prompts.efforts) if "reasoning_effort" in variables else [],
        "thinking_switch": "enable_thinking" in variables,
    }


def sampling_facts(frontend: Frontend) -> dict[str, Any]:
    """By parameter the shape SamplingFact. Without a range a parameter is always its default."""
    defaults = frontend.default_sampling
    facts = {}
    for name in (field.name for field in fields(SamplingParameters)):
        default, bounds = getattr(defaults, name), getattr(defaults.ranges, name)
        low, high = (default, default) if bounds is None else (bounds.low, bounds.high)
        facts[name] = {"default": default, "low": low, "high": high}
    return facts
