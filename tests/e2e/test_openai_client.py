"""The official client against `flare run` on the tiny core."""

from __future__ import annotations

import math
from pathlib import Path

import httpx
import openai
import pytest
from flare_run import FlareRun

SENTENCE = "The quick brown fox jumps over the lazy dog."
QUESTION = [{"role": "user", "content": "Say something."}]


def test_the_model_is_listed_under_the_name_of_its_file(served: FlareRun, client: openai.OpenAI) -> None:
    [model] = client.models.list().data

    assert model.id == served.name == "tiny.F32"
    assert client.models.retrieve(model.id).id == model.id
    assert model.model_extra is not None
    assert model.model_extra["max_model_len"] == 256


def test_chat_whole_and_streamed_are_the_same_answer(served: FlareRun, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=served.name, messages=QUESTION, seed=5, max_tokens=30)
    stream = client.chat.completions.create(
        model=served.name,
        messages=QUESTION,
        seed=5,
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0] for chunk in chunks if chunk.choices]

    assert whole.choices[0].message.role == "assistant"
    assert deltas[0].delta.role == "assistant"
    assert "".join(delta.delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions_whole_and_streamed_are_the_same_text(served: FlareRun, client: openai.OpenAI) -> None:
    options = {"model": served.name, "prompt": SENTENCE, "seed": 6, "max_tokens": 30}
    whole = client.completions.create(**options)
    streamed = list(client.completions.create(**options, stream=True))

    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
    assert streamed[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_two_choices_differ_and_the_first_is_the_single_one(served: FlareRun, client: openai.OpenAI) -> None:
    options = {"model": served.name, "prompt": SENTENCE, "seed": 7, "max_tokens": 24, "logprobs": 0}
    single = client.completions.create(**options, extra_body={"ignore_eos": True})
    double = client.completions.create(**options, n=2, extra_body={"ignore_eos": True})

    first, second = double.choices
    assert (first.index, second.index) == (0, 1)
    assert first.logprobs.tokens == single.choices[0].logprobs.tokens
    assert second.logprobs.tokens != first.logprobs.tokens
    assert double.usage.completion_tokens == 48
    assert double.usage.prompt_tokens == single.usage.prompt_tokens


def test_usage_counts_a_byte_for_a_token(served: FlareRun, client: openai.OpenAI) -> None:
    # The tiny vocabulary has one token per byte, so counts are known without a tokenizer.
    response = client.completions.create(
        model=served.name, prompt=SENTENCE, max_tokens=9, extra_body={"ignore_eos": True}
    )

    assert response.usage.prompt_tokens == len(SENTENCE.encode())
    assert response.usage.completion_tokens == 9
    assert response.usage.total_tokens == len(SENTENCE.encode()) + 9
    assert response.choices[0].finish_reason == "length"


def test_log_probabilities_are_a_distribution(served: FlareRun, client: openai.OpenAI) -> None:
    response = client.chat.completions.create(
        model=served.name, messages=QUESTION, seed=1, max_tokens=12, logprobs=True, top_logprobs=20
    )
    content = response.choices[0].logprobs.content

    assert content
    for entry in content:
        top = [alternative.logprob for alternative in entry.top_logprobs]
        assert len(top) == 20
        assert top == sorted(top, reverse=True)
        assert sum(map(math.exp, top)) <= 1 + 1e-5
        assert entry.logprob <= top[0] + 1e-6
        drawn = [a.logprob for a in entry.top_logprobs if a.bytes == entry.bytes]
        assert not drawn or drawn == [entry.logprob]


def test_a_stop_string_ends_the_text_before_itself(served: FlareRun, client: openai.OpenAI) -> None:
    options = {"model": served.name, "prompt": SENTENCE, "seed": 8, "max_tokens": 100}
    bias = {str(token): 100.0 for token in _tokens_of("ab")}
    free = client.completions.create(**options, logit_bias=bias)
    assert set(free.choices[0].text) == {"a", "b"}
    assert "abb" in free.choices[0].text

    cut = client.completions.create(**options, logit_bias=bias, stop=["zz", "abb"])
    assert cut.choices[0].text == free.choices[0].text.split("abb")[0]
    assert cut.choices[0].finish_reason == "stop"

    streamed = client.completions.create(**options, logit_bias=bias, stop="abb", stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == cut.choices[0].text


def test_a_logit_bias_forces_a_token(served: FlareRun, client: openai.OpenAI) -> None:
    [token] = _tokens_of("x")
    response = client.completions.create(
        model=served.name, prompt=SENTENCE, max_tokens=10, logit_bias={str(token): 100}
    )

    assert response.choices[0].text == "x" * 10


def test_the_end_of_text_waits_for_min_tokens_and_is_ignored_on_request(
    served: FlareRun, client: openai.OpenAI
) -> None:
    ends = {str(token): 100.0 for token in (0, 2)}
    options = {"model": served.name, "prompt": SENTENCE, "max_tokens": 20, "logit_bias": ends}

    at_once = client.completions.create(**options)
    assert (at_once.choices[0].finish_reason, at_once.choices[0].text) == ("stop", "")
    later = client.completions.create(**options, extra_body={"min_tokens": 6})
    assert later.choices[0].finish_reason == "stop"
    assert later.usage.completion_tokens == 7
    ignored = client.completions.create(**options, extra_body={"ignore_eos": True})
    assert ignored.choices[0].finish_reason == "length"
    assert ignored.usage.completion_tokens == 20


def test_a_frequency_penalty_keeps_two_tokens_in_balance(served: FlareRun, client: openai.OpenAI) -> None:
    # The bias leaves two tokens, and 40 draws at a penalty of 2 cannot use it up. A token that is ahead by
    # four has odds of e^8 against it, whatever the model prefers within a few units.
    bias = {str(token): 100.0 for token in _tokens_of("ab")}
    options = {"model": served.name, "prompt": SENTENCE, "seed": 4, "max_tokens": 40, "logit_bias": bias}

    def imbalance(penalty: float) -> int:
        text = client.completions.create(**options, frequency_penalty=penalty).choices[0].text
        assert set(text) <= {"a", "b"}
        return abs(text.count("a") - text.count("b"))

    assert imbalance(2.0) <= 6
    assert imbalance(-2.0) >= 30


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(
    served: FlareRun, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match="256") as refused:
        client.completions.create(model=served.name, prompt="x" * 300, max_tokens=5)

    assert refused.value.code == "context_length_exceeded"
    assert refused.value.type == "invalid_request_error"


def test_temperature_zero_is_refused_and_says_why(served: FlareRun, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="--zero-temperature=clamp") as refused:
        client.chat.completions.create(model=served.name, messages=QUESTION, temperature=0)

    assert refused.value.param == "temperature"


def test_temperature_zero_is_clamped_where_the_server_was_told_so(tiny_core: Path) -> None:
    with FlareRun(tiny_core, "--zero-temperature=clamp") as server, server.client() as client:
        options = {"model": server.name, "prompt": SENTENCE, "max_tokens": 12, "seed": 1}
        zero = client.completions.create(**options, temperature=0)
        smallest = client.completions.create(**options, temperature=0.01)

    assert zero.choices[0].text == smallest.choices[0].text


def test_an_unknown_model_and_an_unknown_path_are_not_found(served: FlareRun, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.completions.create(model="another", prompt="x")
    assert refused.value.code == "model_not_found"
    assert httpx.get(f"{served.url}/v1/unknown").status_code == 404


def test_health_readiness_and_request_ids(served: FlareRun) -> None:
    health = httpx.get(f"{served.url}/health", headers={"x-request-id": "mine-1"})

    assert (health.status_code, health.headers["x-request-id"]) == (200, "mine-1")
    assert httpx.get(f"{served.url}/ready").status_code == 200


def _tokens_of(text: str) -> list[int]:
    """Ids of the tiny byte vocabulary: three special tokens, then the byte symbols in code point order."""
    from tokenizers.pre_tokenizers import ByteLevel

    symbols = sorted(ByteLevel.alphabet())
    return [3 + symbols.index(character) for character in text]
