"""A model at a task of two tools: it asks for the weather of two places at once, for a map of no place, which
fails, and of a place, and says what it saw.

Its template writes a history exactly as the model writes its turns, so that every prompt is the last one,
what the model wrote, and something new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
from agent_model import FORM, call
from live import END, TOKENIZER

from flare.contract import ImageProfile
from flare.engine.client import ProcessEngineClient
from flare.engine.interface import Generation
from flare.engine.messages import Submit
from flare.frontend import FrontendAssets
from flare.testing.hash_model import HashModel
from flare.testing.scripted_engine import Script
from flare.testing.tiny_text import END as STOP
from flare.testing.tiny_text import START, TEXT_END, tiny_assets, tiny_tokenizer

PLACES = ('Zürich "HB"\n</think>', "Bern")
ANSWER = "It is 21 degrees in both places, and I saw a map."
TEMPLATE = (
    "{% macro said(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}"
    "{{ part.text if part.type == 'text' else '" + TEXT_END + "' }}{% endfor %}{% endif %}{% endmacro %}"
    "{% if tools %}" + START + "tools\n{{ tools | tojson }}" + STOP + "{% endif %}"
    "{% for message in messages %}" + START + "{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ said(message.content or '') }}{% for call in message.tool_calls or [] %}"
    "{{ '\\n' }}<tool_call>\n<function={{ call.function.name }}>\n"
    "{% for key, value in call.function.arguments.items() %}<parameter={{ key }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{% endfor %}" + STOP + "{% endfor %}" + START + "assistant{{ '\\n' }}"
)
HASH_MODEL = HashModel(
    concurrency=2,
    context=2048,
    page_tokens=16,
    snapshot_rows=200,
    prefill_tokens=(64, 512),
    decode_lanes=(1, 2),
    vocab_size=TOKENIZER.vocab_size,
    tokenizer=tiny_tokenizer().to_str(),
)


def loop_assets(profile: ImageProfile | None = None) -> FrontendAssets:
    """The model's template and format; with a `profile` it takes images, in the place of a token that is in
    no text."""
    assets = tiny_assets(template=TEMPLATE)
    images = None if profile is None else profile.model_copy(update={"placeholder": 0})
    frontend = assets.frontend.model_copy(update={"output": FORM, "images": images})
    return replace(assets, frontend=frontend)


def turn(prompt: str) -> str:
    """What the model writes behind `prompt`."""
    results = prompt.split(f"{START}tool\n")[1:]
    if not results:
        calls = (call("weather", city=place, days=str(days)) for days, place in enumerate(PLACES, 1))
        return _thought("Two places.") + "I look.\n" + "\n".join(calls)
    if len(results) == 2:
        assert all("21 degrees" in result for result in results)
        return _thought("Now the map.") + "\n" + call("draw", place="Nowhere")
    if len(results) == 3:
        assert "no such place" in results[2]
        return _thought("That was wrong.") + "Again.\n" + call("draw", place="Bern")
    assert "map of Bern" in results[3]
    return _thought("I have all.") + ANSWER


def _thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


def written(prompt: Iterable[int]) -> list[int]:
    """The model's turn as tokens, with the one that ends it."""
    return [*TOKENIZER.encode(turn(TOKENIZER.decode([*prompt], skip_special=False))), END]


class Transcript:
    """A script of the scripted engine that remembers prompts with what was written behind them. What two of
    them have in common is cached, but for the last token, which was drawn and never read."""

    def __init__(self) -> None:
        self.turns: list[tuple[list[int], list[int]]] = []

    def __call__(self, submit: Submit) -> Script:
        prompt, output = [*submit.prompt], written(submit.prompt)
        cached = max((_common(prompt, [*before, *then][:-1]) for before, then in self.turns), default=0)
        self.turns.append((prompt, output))
        return Script(tokens=output, batch=3, cached=cached)


def _common(one: list[int], other: list[int]) -> int:
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)


class PrescribedEngine:
    """A real engine process whose model writes what this module says: its random draws are held to a grammar
    of exactly these tokens. Everything else, prompts and cache, is what it is for any model."""

    def __init__(self, inner: ProcessEngineClient) -> None:
        self._inner = inner
        self.transcript = Transcript()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def submit(self, request: Submit) -> Generation:
        """See `EngineClient.submit`."""
        tokens = self.transcript(request).tokens[:-1]
        grammar = "start: " + " ".join(f"<[{token}]>" for token in tokens)
        return await self._inner.submit(
            msgspec.structs.replace(request, grammar='{"grammars": [{"lark_grammar": "' + grammar + '"}]}')
        )
