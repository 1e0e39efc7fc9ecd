"""Chat completions through the real client library."""

from __future__ import annotations

import math

import openai
import pytest
from live import CONTEXT, END, MODEL, TOKENIZER, LiveServer, chatter, say

from flare.engine.messages import Submit
from flare.testing.scripted_engine import Script
from flare.testing.tiny_text import END as END_PIECE

USER = [{"role": "user", "content": "Hi there"}]
TEXT = "Naïve answer: 🙂 語 \u2028 done."


def test_whole_response(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = say(TEXT, cached=3)

    response = openai_client.chat.completions.create(model=MODEL, messages=USER)

    choice = response.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", TEXT)
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    submit = server.engine.counters.submissions[0]
    assert TOKENIZER.decode(submit.prompt, skip_special=False) == (
        "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n"
    )
    usage = response.usage
    assert usage is not None
    assert usage.prompt_tokens == len(submit.prompt)
    assert usage.completion_tokens == len(TOKENIZER.encode(TEXT)) + 1
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert (response.object, response.model) == ("chat.completion", MODEL)


@pytest.mark.parametrize("batch", [1, 2, 7, 1000])
def test_stream_has_the_same_text_whatever_a_step_produced(
    server: LiveServer, openai_client: openai.OpenAI, batch: int
) -> None:
    server.engine.script = say(TEXT, batch=batch)

    chunks = list(openai_client.chat.completions.create(model=MODEL, messages=USER, stream=True))

    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert all(delta.role is None for delta in deltas[1:])
    assert "".join(delta.content or "" for delta in deltas) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert deltas[-1].content is None
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_defaults_of_a_submission(server: LiveServer, openai_client: openai.OpenAI) -> None:
    openai_client.chat.completions.create(model=MODEL, messages=USER)

    submit = server.engine.counters.submissions[0]
    assert submit.max_tokens == CONTEXT - len(submit.prompt)
    assert submit.min_tokens == 0
    assert submit.stop_token_ids == (0, END)
    assert submit.logprobs is None
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 0, 1.0, 0.0)


def test_every_field_reaches_the_engine(server: LiveServer, openai_client: openai.OpenAI) -> None:
    openai_client.chat.completions.create(
        model=MODEL,
        messages=USER,
        max_tokens=99,
        max_completion_tokens=12,
        temperature=0.5,
        top_p=0.25,
        presence_penalty=0.75,
        frequency_penalty=-0.75,
        seed=-5,
        logit_bias={"7": 3, "5": -100},
        extra_body={
            "top_k": 9,
            "min_p": 0.125,
            "repetition_penalty": 1.25,
            "min_tokens": 4,
            "ignore_eos": True,
            "stop_token_ids": [33, 11],
            "prompt_cache_key": "ignored",
        },
    )

    submit = server.engine.counters.submissions[0]
    assert (submit.max_tokens, submit.min_tokens, submit.stop_token_ids) == (12, 4, (11, 33))
    sampling = submit.sampling
    assert sampling.seed == 2**64 - 5
    assert sampling.logit_bias == ((5, -100.0), (7, 3.0))
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 9, 0.25, 0.125)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (
        1.25,
        0.75,
        -0.75,
    )


def test_length_is_reported(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = chatter()

    response = openai_client.chat.completions.create(model=MODEL, messages=USER, max_tokens=5)

    assert response.choices[0].finish_reason == "length"
    assert response.usage is not None
    assert response.usage.completion_tokens == 5


def test_zero_output_tokens_need_no_engine(server: LiveServer, openai_client: openai.OpenAI) -> None:
    response = openai_client.chat.completions.create(model=MODEL, messages=USER, max_tokens=0)

    assert (response.choices[0].message.content, response.choices[0].finish_reason) == ("", "length")
    assert server.engine.counters.submissions == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("batch", [1, 5, 100])
def test_a_stop_string_cuts_the_text_and_cancels_the_engine(
    server: LiveServer, openai_client: openai.OpenAI, batch: int, stream: bool
) -> None:
    server.engine.script = say("first line\n\nObservation: x " * 9, batch=batch, delay=0.002)
    options = {"model": MODEL, "messages": USER, "stop": ["\nObs", "never"], "max_tokens": 200}

    if stream:
        chunks = list(
            openai_client.chat.completions.create(
                **options, stream=True, stream_options={"include_usage": True}
            )
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
        reason, usage = chunks[-2].choices[0].finish_reason, chunks[-1].usage
    else:
        response = openai_client.chat.completions.create(**options)
        text, reason = response.choices[0].message.content, response.choices[0].finish_reason
        usage = response.usage

    assert (text, reason) == ("first line\n", "stop")
    assert usage is not None
    tokens = TOKENIZER.encode("first line\n\nObservation: x ")
    needed = next(n for n in range(len(tokens)) if "\nObs" in TOKENIZER.decode(tokens[:n]))
    assert usage.completion_tokens == needed
    server.wait(lambda: server.engine.running == 0)
    assert server.engine.counters.cancelled == 1


def test_usage_chunk_and_continuous_usage(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = say("one two three")
    tokens = len(TOKENIZER.encode("one two three")) + 1

    chunks = list(
        openai_client.chat.completions.create(
            model=MODEL,
            messages=USER,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        )
    )

    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == tokens
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None]
    assert len(counts) == len(chunks)
    assert counts == sorted(counts)
    assert all(chunk.choices for chunk in chunks[:-1])


def test_logprobs(server: LiveServer, openai_client: openai.OpenAI) -> None:
    tokens = TOKENIZER.encode("x 🙂")
    script = Script(tokens=[*tokens, END], logprob=-0.25, top=((tokens[0], -0.25), (5, -math.inf)))
    server.engine.script = lambda submit: script
    options = {"model": MODEL, "messages": USER, "logprobs": True, "top_logprobs": 2}

    whole = openai_client.chat.completions.create(**options)
    streamed = list(openai_client.chat.completions.create(**options, stream=True))

    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    content = logprobs.content
    assert content is not None
    assert b"".join(bytes(entry.bytes or []) for entry in content).decode() == "x 🙂"
    assert [entry.logprob for entry in content] == [-0.25] * len(tokens)
    assert [entry.logprob for entry in content[0].top_logprobs] == [-0.25, -9999.0]
    pieces = [
        entry
        for chunk in streamed
        if chunk.choices[0].logprobs is not None
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert pieces == content


def test_logprobs_end_where_the_text_is_cut(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = say("keep this, drop that")

    response = openai_client.chat.completions.create(model=MODEL, messages=USER, logprobs=True, stop=" drop")

    logprobs = response.choices[0].logprobs
    assert logprobs is not None
    assert "".join(entry.token for entry in logprobs.content or []) == "keep this,"
    assert response.choices[0].message.content == "keep this,"


@pytest.mark.parametrize("stream", [False, True])
def test_choices_are_kept_apart(server: LiveServer, openai_client: openai.OpenAI, stream: bool) -> None:
    def script(submit: Submit) -> Script:
        index = int(submit.request_id.rpartition("-")[2])
        return Script(tokens=[*TOKENIZER.encode(f"choice {index}"), END], delay=0.003 * (4 - index))

    server.engine.script = script
    if stream:
        texts = ["", "", ""]
        finished = []
        for chunk in openai_client.chat.completions.create(
            model=MODEL, messages=USER, n=3, seed=1, stream=True, stream_options={"include_usage": True}
        ):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                finished += [choice.index] if choice.finish_reason else []
            usage = chunk.usage
        assert sorted(finished) == [0, 1, 2]
    else:
        response = openai_client.chat.completions.create(model=MODEL, messages=USER, n=3, seed=1)
        texts = [choice.message.content or "" for choice in response.choices]
        assert [choice.index for choice in response.choices] == [0, 1, 2]
        usage = response.usage

    assert texts == ["choice 0", "choice 1", "choice 2"]
    submissions = server.engine.counters.submissions
    assert len({submit.sampling.seed for submit in submissions}) == 3
    assert len({submit.request_id for submit in submissions}) == 3
    assert usage is not None
    assert usage.prompt_tokens == len(submissions[0].prompt)
    assert usage.completion_tokens == 3 * (len(TOKENIZER.encode("choice 0")) + 1)


def test_control_tokens_in_the_answer_have_no_text(server: LiveServer, openai_client: openai.OpenAI) -> None:
    server.engine.script = lambda submit: Script(tokens=[*TOKENIZER.encode(f"a{END_PIECE}b"), 0])

    response = openai_client.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=8, extra_body={"ignore_eos": True}
    )

    assert (response.choices[0].message.content, response.choices[0].finish_reason) == ("abab", "length")


def test_a_prompt_that_leaves_no_room_names_the_numbers(
    server: LiveServer, openai_client: openai.OpenAI
) -> None:
    long = [{"role": "user", "content": "word " * 400}]
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model=MODEL, messages=long)

    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert str(CONTEXT) in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model=MODEL, messages=USER, max_tokens=CONTEXT)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")
    assert server.engine.counters.submissions == []


def test_an_unknown_model_is_not_found(server: LiveServer, openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.chat.completions.create(model="other", messages=USER)

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_models(server: LiveServer, openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == [MODEL]
    assert openai_client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("other")


def test_images_are_refused_by_a_model_that_takes_none(
    server: LiveServer, openai_client: openai.OpenAI
) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

    with pytest.raises(openai.BadRequestError, match="'image_url' are not served by this model"):
        openai_client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])
