"""Text completions through the real client library."""

from __future__ import annotations

import openai
import pytest
from live import MODEL, TOKENIZER, LiveServer, chatter, say

from flare.engine.messages import Submit
from flare.testing.scripted_engine import Script


def test_text(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = say(" world")

    response = openai_client.completions.create(model=MODEL, prompt="hello", max_tokens=20)

    assert (response.choices[0].text, response.choices[0].finish_reason) == (" world", "stop")
    assert server.engine.counters.submissions[0].prompt == tuple(TOKENIZER.encode("hello"))
    assert response.object == "text_completion"


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_with_several_choices(
    server: LiveServer, openai_client: openai.OpenAI, stream: bool
) -> None:
    def script(submit: Submit) -> Script:
        text = f"<{TOKENIZER.decode(submit.prompt)}{submit.sampling.seed % 100}>"
        return Script(tokens=[*TOKENIZER.encode(text), 0])

    server.engine.script = script
    options = {"model": MODEL, "prompt": ["a", "bb", "ccc"], "n": 2, "seed": 42}
    texts = [""] * 6
    if stream:
        for chunk in openai_client.completions.create(**options, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    else:
        response = openai_client.completions.create(**options)
        texts = [choice.text for choice in response.choices]
        assert response.usage is not None
        assert response.usage.prompt_tokens == sum(len(TOKENIZER.encode(p)) for p in ("a", "bb", "ccc"))

    # A prompt draws with the same seeds in a list as alone.
    first, second = (submit.sampling.seed % 100 for submit in server.engine.counters.submissions[:2])
    assert first == 42
    assert texts == [f"<{prompt}{seed}>" for prompt in ("a", "bb", "ccc") for seed in (first, second)]


@pytest.mark.parametrize("prompt", [[7, 8, 9], [[7, 8, 9], [10]]])
def test_token_prompts(server: LiveServer, openai_client: openai.OpenAI, prompt: list[int]) -> None:
    openai_client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)

    sent = [submit.prompt for submit in server.engine.counters.submissions]
    assert sorted(sent) == ([(7, 8, 9)] if isinstance(prompt[0], int) else [(7, 8, 9), (10,)])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["say 🙂", TOKENIZER.encode("say 🙂")])
def test_echo(
    server: LiveServer, openai_client: openai.OpenAI, prompt: str | list[int], stream: bool
) -> None:
    server.engine.script = say(" yes")
    options = {"model": MODEL, "prompt": prompt, "echo": True, "max_tokens": 30}

    if stream:
        chunks = openai_client.completions.create(**options, stream=True)
        text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    else:
        text = openai_client.completions.create(**options).choices[0].text

    assert text == "say 🙂 yes"


@pytest.mark.parametrize("stream", [False, True])
def test_echo_alone_needs_no_engine(server: LiveServer, openai_client: openai.OpenAI, stream: bool) -> None:
    options = {"model": MODEL, "prompt": ["one", "two"], "echo": True, "max_tokens": 0}
    texts = ["", ""]
    if stream:
        for chunk in openai_client.completions.create(**options, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    else:
        texts = [choice.text for choice in openai_client.completions.create(**options).choices]

    assert texts == ["one", "two"]
    assert server.engine.counters.submissions == []


def test_logprobs(server: LiveServer, openai_client: openai.OpenAI) -> None:
    tokens = TOKENIZER.encode("ab 🙂")
    top = ((tokens[0], -0.1), (9, -2.0))
    server.engine.script = lambda submit: Script(tokens=[*tokens, 0], logprob=-0.5, top=top)

    response = openai_client.completions.create(model=MODEL, prompt="x", logprobs=1)

    logprobs = response.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs == [-0.5] * len(tokens)
    assert logprobs.text_offset is not None
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    assert logprobs.text_offset[-1] == len("ab ")
    assert logprobs.tokens is not None
    assert logprobs.tokens[-1].startswith("bytes:\\x")
    assert logprobs.top_logprobs is not None
    for label, alternatives in zip(logprobs.tokens, logprobs.top_logprobs, strict=True):
        assert alternatives[label] == -0.5
    assert server.engine.counters.submissions[0].logprobs == 1


def test_ignore_eos_and_min_tokens(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = say("hi")

    response = openai_client.completions.create(
        model=MODEL, prompt="x", max_tokens=12, extra_body={"ignore_eos": True, "min_tokens": 12}
    )

    assert response.usage is not None
    assert response.usage.completion_tokens == 12
    assert response.choices[0].finish_reason == "length"


def test_stop_token_ids_end_the_text(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = chatter()
    stop = TOKENIZER.encode("la ")[-1]

    response = openai_client.completions.create(
        model=MODEL, prompt="x", extra_body={"stop_token_ids": [stop]}
    )

    assert response.choices[0].finish_reason == "stop"
    assert response.choices[0].text == TOKENIZER.decode(TOKENIZER.encode("la ")[:-1])
