"""Answers beside tools: a model that writes what the grammar admits writes an answer of the schema or calls,
as the output machine reads them, and nothing else."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
import tokenizers
from function_calls import FUNCTION
from test_composition import accepts, mask_of

from flare.contract import CallFormat, CallSyntax, Mark, OutputFormat, ReasoningFormat, TaggedArguments
from flare.device.sim import SimDevice, SimOptions
from flare.engine.loop import Engine
from flare.engine.messages import Event, Finished, Sampling, Submit, Tokens
from flare.frontend import PartedOutput, TextOutput, Tokenizer
from flare.grammar import Matcher, Vocabulary, choice, compose, json_schema
from flare.server.outcome import Outcome
from flare.testing.hash_model import HashModel
from flare.testing.tiny_text import tiny_tokenizer

MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<calls>",
    "</calls>",
    "<k>",
    "</k>",
    "<v>",
    "</v>",
]
TYPED = TaggedArguments(
    name_end='">',
    argument_start='<p name="',
    key_end='" string="',
    value_start='">',
    value_end="</p>",
    typed=True,
)
KEYS = TaggedArguments(argument_start="<k>", key_end="</k>", value_start="<v>", value_end="</v>")
SYNTAXES: dict[str, TaggedArguments | None] = {
    "function": FUNCTION,
    "typed": TYPED,
    "keys": KEYS,
    "json": None,
}
TOOLS = {"get": {"type": "object"}, "get_all": {"type": "object", "properties": {"a": {"type": "integer"}}}}
PIECES = ['{"x": "', '"}', '"', "get", "get_all", "a", "true", "false", "\n", " ", "é", "{", "}", "<"]
PIECES += [
    "<function=",
    ">",
    "<parameter=",
    "</parameter>",
    "</function>",
    '">',
    '<p name="',
    '" string="',
    "</p>",
]
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "string"}},
    "required": ["x"],
    "additionalProperties": False,
}


def with_marks() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())
    backend.add_tokens([tokenizers.AddedToken(text, special=False, normalized=False) for text in MARKS])
    return backend


BACKENDS = {"tokens": with_marks(), "letters": tiny_tokenizer()}
VOCABULARIES = {
    name: Vocabulary(backend.to_str().encode(), 460, (0, 2)) for name, backend in BACKENDS.items()
}
READERS = {name: Tokenizer(backend.to_str().encode()) for name, backend in BACKENDS.items()}


@cache
def form_of(name: str, syntax: str, section: bool, reasons: bool) -> OutputFormat:
    def mark(text: str) -> Mark:
        return Mark(text=text, token=BACKENDS[name].token_to_id(text))

    arguments = SYNTAXES[syntax]
    return OutputFormat(
        reasoning=ReasoningFormat(start=mark("<think>"), end=mark("</think>")) if reasons else None,
        calls=CallFormat(
            syntax=CallSyntax.JSON if arguments is None else CallSyntax.TAGGED,
            start=mark("<tool_call>"),
            end=mark("</tool_call>"),
            section=(mark("<calls>"), mark("</calls>")) if section else None,
            arguments=arguments,
        ),
    )


@cache
def compiled(
    name: str,
    syntax: str,
    section: bool = False,
    reasons: bool = True,
    opened: bool = False,
    several: bool = True,
) -> Matcher:
    made = compose(
        json_schema(SCHEMA, "s"),
        form_of(name, syntax, section, reasons),
        opened=opened,
        token_of=BACKENDS[name].token_to_id,
        tools=tuple(TOOLS),
        several=several,
    )
    return Matcher.compile(VOCABULARIES[name], made)


def read(name: str, form: OutputFormat, tokens: list[int], opened: bool) -> Outcome:
    output = PartedOutput(TextOutput(READERS[name], (), (0, 2)), form, opened, TOOLS, alone=True)
    outcome = Outcome()
    for token in tokens:
        outcome.take(output.feed(token))
    outcome.take(output.finish())
    return outcome


def good(outcome: Outcome) -> bool:
    """An answer that is valid by SCHEMA and no call, or complete calls of TOOLS and no answer."""
    if outcome.broken:
        return False
    if outcome.calls:
        calls = outcome.calls.values()
        parsed = [call.complete and call.name in TOOLS and isinstance(call.parsed, dict) for call in calls]
        return all(parsed) and not outcome.answer
    try:
        answer = json.loads(outcome.answer)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.keys() == {"x"} and isinstance(answer["x"], str)


def call(syntax: str, tool: str = "get_all", key: str = "a", value: str = "1") -> str:
    match syntax:
        case "function":
            inside = f"\n<function={tool}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n"
        case "typed":
            inside = f'{tool}">\n<p name="{key}" string="false">{value}</p>\n'
        case "keys":
            inside = f"{tool}\n<k>{key}</k>\n<v>{value}</v>\n"
        case _:
            inside = "\n" + json.dumps({"name": tool, "arguments": {key: value}}, ensure_ascii=False) + "\n"
    return f"<tool_call>{inside}</tool_call>"


def sectioned(text: str, section: bool) -> str:
    return f"<calls>\n{text}\n</calls>" if section else text


EVERY = [
    pytest.param(name, syntax, section, id=f"{name}-{syntax}-{'section' if section else 'plain'}")
    for name in BACKENDS
    for syntax in SYNTAXES
    for section in (False, True)
]


@pytest.mark.parametrize(("name", "syntax", "section"), EVERY)
def test_answers_and_calls_are_admitted_and_nothing_beside_them(
    name: str, syntax: str, section: bool
) -> None:
    backend, form = BACKENDS[name], form_of(name, syntax, section, True)
    one, two = call(syntax), call(syntax, "get", "b c", "<b>é\n</p")
    answers = ['{"x": "a"}', '{"x":"<tool_call>"}' if name == "letters" else '{"x":""}']
    calls = [sectioned(one, section), sectioned(f"{one}\n{two}", section), sectioned(two, section)]
    bad = [
        "text",
        sectioned(call(syntax, "other"), section),
        calls[0] + '{"x": "a"}',
        "text\n" + calls[0],
        calls[0][:-1],
        calls[0].replace("</tool_call>", "") if section else "<tool_call></tool_call>",
        '{"x": 1}',
    ]
    for beginning in ("", "<think>so</think>\n\n", "<think>"):
        for text, expected in [*((t, True) for t in (*answers, *calls)), *((t, False) for t in bad)]:
            if beginning == "<think>" and text not in calls:
                continue  # of which the mark that begins it ends the reasoning
            tokens = backend.encode(beginning + text).ids
            assert accepts(compiled(name, syntax, section).copy(), tokens) is expected, (beginning, text)
            if expected:
                outcome = read(name, form, tokens, opened=False)
                assert good(outcome), (beginning, text, outcome.events)
                assert bool(outcome.calls) is (text in calls)


@pytest.mark.parametrize(("name", "syntax", "section"), EVERY)
@pytest.mark.parametrize("opened", [False, True])
def test_whatever_a_random_model_may_draw_is_an_answer_or_calls(
    name: str, syntax: str, section: bool, opened: bool
) -> None:
    """It draws pieces of the format as far as they are admitted, and may end where the output is whole."""
    backend, form = BACKENDS[name], form_of(name, syntax, section, True)
    whole = call(syntax)
    pieces = [*MARKS, *PIECES, whole, whole[:-1], whole[len("<tool_call>") :], sectioned(whole, True)]
    pieces += 4 * ["</think>", '{"x": "a"}']
    encoded = [backend.encode(piece).ids for piece in pieces]
    ends = {0, 2}
    seen = {"calls": 0, "answers": 0}
    for seed in range(40):
        rng = random.Random(seed)
        matcher = compiled(name, syntax, section, opened=opened).copy()
        written: list[int] = []
        for _ in range(60):
            piece = rng.choice(encoded)
            length = matcher.admissible(piece)
            matcher.advance(piece[:length])
            written += piece[:length]
            admitted = bool(mask_of(matcher, VOCABULARIES[name]) & ends) if rng.random() < 0.2 else None
            if admitted is not None:
                assert admitted is matcher.accepts
            if matcher.accepts:
                outcome = read(name, form, written, opened)
                assert good(outcome), (seed, backend.decode(written), outcome.events)
                seen["calls" if outcome.calls else "answers"] += 1
                if rng.random() < 0.5:
                    break
    assert min(seen.values()) > 0, seen


def test_one_call_alone_where_no_more_are_wanted() -> None:
    for section in (False, True):
        one = compiled("letters", "json", section, several=False)
        tokens = BACKENDS["letters"].encode(sectioned(call("json"), section)).ids
        assert accepts(one.copy(), tokens)
        both = sectioned(call("json") + "\n" + call("json"), section)
        assert not accepts(one.copy(), BACKENDS["letters"].encode(both).ids)


def test_a_model_without_reasoning_calls_at_once() -> None:
    backend = BACKENDS["letters"]
    for text, expected in (
        (call("keys"), True),
        ('{"x": ""}', True),
        ("<think></think>" + call("keys"), False),
    ):
        assert (
            accepts(compiled("letters", "keys", reasons=False).copy(), backend.encode(text).ids) is expected
        )


def test_of_a_constraint_alone_nothing_changes() -> None:
    form = form_of("letters", "json", False, False)
    assert compose(choice(["a"], "c"), form) == compose(choice(["a"], "c"))


def test_an_engine_whose_model_draws_anything_ends_with_an_answer_or_calls() -> None:
    """The hash model draws among what is admitted, without a thought."""
    backend = BACKENDS["letters"]
    model = HashModel(context=512, vocab_size=450, tokenizer=backend.to_str(), stop_token_ids=2)
    device = SimDevice(model.build(), SimOptions())
    events: list[Event] = []
    engine = Engine(device, events.append)
    form = form_of("letters", "json", False, False)
    short = {**SCHEMA, "properties": {"x": {"enum": ["a", "b"]}}}
    made = compose(json_schema(short, "s"), form, token_of=backend.token_to_id, tools=tuple(TOOLS))
    for number in range(24):
        engine.submit(
            Submit(
                request_id=str(number),
                prompt=(5, number + 3),
                sampling=Sampling(temperature=1.0, seed=number),
                max_tokens=120,
                stop_token_ids=(0, 2),
                grammar=made,
            )
        )
    while engine.step():
        pass
    engine.close()
    seen = {"calls": 0, "answers": 0}
    for end in events:
        if isinstance(end, Finished) and end.reason == "stop":
            mine = [e for e in events if isinstance(e, Tokens) and e.request_id == end.request_id]
            outcome = read("letters", form, [token for e in mine for token in e.tokens], opened=False)
            assert good(outcome), outcome.events
            seen["calls" if outcome.calls else "answers"] += 1
    assert min(seen.values()) > 0, seen
