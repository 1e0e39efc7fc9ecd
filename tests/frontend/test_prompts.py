from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from flare.errors import CoreError, RequestError
from flare.frontend import Prompts, TokenBytes, Tokenizer, UnsupportedError
from flare.testing.tiny_text import tiny_assets, tiny_tokenizer


def with_bos(token: str = "<|im_start|>") -> Prompts:
    assets = tiny_assets()
    frontend = assets.frontend.model_copy(update={"add_bos": True, "special_tokens": {"bos_token": token}})
    return Prompts(replace(assets, frontend=frontend))


def test_a_text_prompt_starts_with_bos_where_the_model_wants_it() -> None:
    assert with_bos().from_text("hello").tokens == (1, *Prompts(tiny_assets()).from_text("hello").tokens)
    assert with_bos().from_text("").tokens == (1,)


def test_chat_prompts_get_no_second_bos() -> None:
    messages = [{"role": "user", "content": "hi"}]

    assert with_bos().from_messages(messages) == Prompts(tiny_assets()).from_messages(messages)


def test_token_prompts_are_taken_as_they_are() -> None:
    assert with_bos().from_tokens([5, 0, 399]).tokens == (5, 0, 399)


@pytest.mark.parametrize("tokens", [[-1], [400], [2**70]])
def test_ids_outside_the_vocabulary_are_refused(tokens: list[int]) -> None:
    with pytest.raises(RequestError, match="not a token id below 400"):
        Prompts(tiny_assets()).from_tokens(tokens)


def test_empty_prompts_are_refused() -> None:
    for make in (Prompts(tiny_assets()).from_text, Prompts(tiny_assets()).from_tokens):
        with pytest.raises(RequestError, match="empty"):
            make("")  # type: ignore[operator]


def test_a_core_without_template_refuses_chat() -> None:
    with pytest.raises(UnsupportedError, match="/v1/completions"):
        Prompts(tiny_assets(template=None)).from_messages([{"role": "user", "content": "x"}])


def test_broken_assets_are_core_errors() -> None:
    with pytest.raises(CoreError, match="tokenizer"):
        Tokenizer(b"{}")
    with pytest.raises(CoreError, match="no token 'nope'"):
        with_bos("nope")
    with pytest.raises(CoreError, match="no chat template"):
        Prompts(replace(tiny_assets(), template=None))


def test_truncation_and_padding_of_the_file_are_off() -> None:
    document = json.loads(tiny_tokenizer().to_str())
    document["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    text = "one two three four"

    assert Tokenizer(json.dumps(document).encode()).encode(text) == tiny_tokenizer().encode(text).ids


def test_token_bytes_join_to_the_text() -> None:
    tokenizer = Tokenizer(tiny_tokenizer().to_str().encode())
    vocabulary = TokenBytes(tokenizer)
    text = "naïve 🙂 語 \x00\n\t<|im_end|>"
    tokens = tokenizer.encode(text)

    assert b"".join(vocabulary[token][1] for token in tokens).decode() == text
    labels = [vocabulary.label(token) for token in range(256 + 3)]
    assert len(set(labels)) == len(labels)
    assert any(label.startswith("bytes:\\x") for label in labels)


def test_the_frontend_imports_no_model_code() -> None:
    code = (
        "import sys, flare.frontend, flare.server, flare.testing.scripted_engine\n"
        "print([m for m in ('torch', 'transformers', 'flare.device', 'flare.scheduler', 'flare_components') "
        "if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
