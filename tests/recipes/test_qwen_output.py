"""What the recipe says about outputs is how its template writes them."""

from __future__ import annotations

from flare.contract import Frontend
from flare.frontend import FrontendAssets, Prompts, TextOutput, Tokenizer
from flare.frontend.output_machine import (
    Answer,
    Arguments,
    CallEnd,
    CallStart,
    OutputMachine,
    Reasoning,
    opens_reasoning,
)
from flare.grammar import Matcher, Vocabulary, compose, json_schema
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

WRITTEN = (
    "<think>\nI look.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n"
    "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)


def test_a_written_output_is_read(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    checkpoint = RECIPE.loader.open(flare_tiny_checkpoint(RECIPE))
    files = RECIPE.frontend.assets(checkpoint, RECIPE.loader.config(checkpoint), RECIPE.sampling)
    form = files.frontend.output
    assert Frontend.model_validate_json(files.frontend.model_dump_json()).output == form
    assert form.reasoning is not None
    assert form.calls is not None
    tokenizer = Tokenizer(files.assets[files.frontend.tokenizer_asset])
    marks = (form.reasoning.start, form.reasoning.end, form.calls.start, form.calls.end)
    by_token = {mark.token: mark for mark in marks}
    assert None not in by_token, "the tokenizer has a token for every mark"
    assert all(tokenizer.encode(mark.text) == [mark.token] for mark in marks)

    tools = {"weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
    machine, text = OutputMachine(form, tools=tools), TextOutput(tokenizer)
    events: list[object] = []
    for token in tokenizer.encode(WRITTEN):
        mark = by_token.get(token)
        for piece in (text.pass_over(), mark) if mark is not None else (text.feed(token),):
            events += machine.feed(piece)
    events += machine.finish()

    def joined(kind: type[Reasoning] | type[Answer] | type[Arguments]) -> str:
        return "".join(event.text for event in events if isinstance(event, kind))

    assert (joined(Reasoning), joined(Answer)) == ("I look.", "One moment.")
    assert joined(Arguments) == '{"city": "Zürich", "days": 3}'
    assert [e for e in events if isinstance(e, CallStart | CallEnd)] == [CallStart(0, "weather"), CallEnd(0)]


def test_calls_as_the_template_writes_them_are_admitted_beside_a_schema(
    flare_tiny_checkpoint: TinyCheckpoints,
) -> None:
    checkpoint = RECIPE.loader.open(flare_tiny_checkpoint(RECIPE))
    files = RECIPE.frontend.assets(checkpoint, RECIPE.loader.config(checkpoint), RECIPE.sampling)
    frontend, data = files.frontend, files.assets[files.frontend.tokenizer_asset]
    tokenizer = Tokenizer(data)
    made = compose(
        json_schema({"type": "object"}, "s"), frontend.output, token_of=tokenizer.token, tools=("weather",)
    )
    matcher = Matcher.compile(Vocabulary(data, frontend.vocab_size, frontend.eos_token_ids), made)
    matcher.advance(tokenizer.encode(WRITTEN.replace("One moment.\n\n", "")))
    assert matcher.accepts


def test_thinking_is_open_when_the_prompt_says_so(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    checkpoint = RECIPE.loader.open(flare_tiny_checkpoint(RECIPE))
    files = RECIPE.frontend.assets(checkpoint, RECIPE.loader.config(checkpoint), RECIPE.sampling)
    frontend = files.frontend
    template = files.assets[frontend.template_asset or ""].decode()
    prompts = Prompts(FrontendAssets(frontend, files.assets[frontend.tokenizer_asset], template))
    messages = [{"role": "user", "content": "1+1?"}]
    thinking = prompts.from_messages(messages)
    quiet = prompts.from_messages(messages, variables={"enable_thinking": False})
    assert opens_reasoning(thinking.text or "", frontend.output)
    assert not opens_reasoning(quiet.text or "", frontend.output)
