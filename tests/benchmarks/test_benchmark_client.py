"""The client as a whole, against a server whose pace is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import client
import pytest
from fake_openai import FakeServer
from loadtest.prompts import PromptWriter

QUICK = ["--cold-repeats", "2", "--decode-repeats", "1", "--output-tokens", "12", "--concurrency", "1", "3"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["client.py", *arguments])
    return client.main()


def test_a_result_file_holds_what_the_server_did(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.behaviour.first_seconds = 0.05
    server.behaviour.tokens_per_word = 1.37
    file = tmp_path / "new" / "fake.json"
    arguments = ["--url", server.url, "--label", "Fake", "--version", "fake=1.2", "--output", str(file)]
    assert run(monkeypatch, *arguments, *QUICK) == 0
    assert "decode, 3 streams, tok/s" in capsys.readouterr().out

    written = json.loads(file.read_text())
    assert (written["label"], written["model"], written["versions"]) == (
        "Fake",
        "fake-model",
        {"fake": "1.2"},
    )
    assert written["machine"]["cores"] >= 1
    assert written["settings"]["output_tokens"] == 12
    cold = written["results"]["cold"]["360"]
    assert len(cold["prompt_tokens"]) == 2
    assert all(abs(tokens - 360) <= 7 for tokens in cold["prompt_tokens"])
    assert all(latency >= 50 for latency in cold["all_first_token_ms"])
    one, three = (written["results"]["decode"][streams] for streams in ("1", "3"))
    assert server.seen.most_open == 3
    assert len(three["streams"]) == 3
    assert all(stream["completion_tokens"] == 12 for stream in three["streams"])
    # The pace is a lower bound of every pause, so three streams cannot be faster than this one by one.
    assert one["inter_token_ms"]["p50"] >= 9
    assert 0 < one["tokens_per_second"] < 110
    assert one["tokens_per_event"] == 1


def test_joined_tokens_are_counted_from_usage(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behaviour.joined = 4
    server.behaviour.token_seconds = 0.02
    file = tmp_path / "fake.json"
    arguments = ["--url", server.url, "--scenarios", "decode", "--concurrency", "1", "--output-tokens", "40"]
    assert run(monkeypatch, *arguments, "--decode-repeats", "1", "--output", str(file)) == 0
    decode = json.loads(file.read_text())["results"]["decode"]["1"]
    assert decode["tokens_per_event"] == 4
    # Nine pauses of at least 20 ms bring four tokens each; one token each would be 50 a second at most.
    assert 50 < decode["tokens_per_second"] <= 205


def test_no_two_prompts_share_a_beginning(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--url", server.url, *QUICK, "--temperature", "0.7", "--top-k", "5") == 0
    beginnings = [tuple(body["prompt"].split()[:6]) for body in server.seen.bodies]
    assert len(set(beginnings)) == len(beginnings) > 8
    for body in server.seen.bodies:
        assert (body["temperature"], body["top_k"], body["top_p"]) == (0.7, 5, 0.95)
        assert body["ignore_eos"] is True
        assert body["stream_options"] == {"include_usage": True}


def test_two_clients_write_other_prompts() -> None:
    assert PromptWriter().write(20) != PromptWriter().write(20)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"fault": "status"}, "answered 503"),
        ({"fault": "error"}, "lost the device"),
        ({"fault": "cut"}, "without [DONE]"),
        ({"fault": "no usage"}, "no usage"),
        ({"fault": "silent"}, "no text"),
        ({"fault": "short"}, "asked for 4 tokens, the server drew 3"),
        ({"cached_tokens": 352}, "352 tokens of a fresh prompt were cached"),
        ({"tokens_per_word": 400.0}, "no number of words"),
        ({"tokens_per_word": 0.0}, "counts 0 tokens"),
    ],
)
def test_a_measurement_that_means_nothing_fails(
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    behaviour: dict[str, Any],
    message: str,
) -> None:
    for name, value in behaviour.items():
        setattr(server.behaviour, name, value)
    file = tmp_path / "fake.json"
    assert run(monkeypatch, "--url", server.url, *QUICK, "--output", str(file)) == 1
    assert message in capsys.readouterr().err
    assert not file.exists()


def test_nobody_listening_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as gone:
        url = gone.url
    assert run(monkeypatch, "--url", url, *QUICK) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_files_are_compared_by_name(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, tokens in zip(files, ("8", "9"), strict=True):
        arguments = ["--url", server.url, "--label", Path(file).stem, "--output", file]
        assert run(monkeypatch, *arguments, *QUICK, "--output-tokens", tokens) == 0
    capsys.readouterr()
    assert run(monkeypatch, "--compare", *files) == 0
    printed = capsys.readouterr()
    assert [cell.strip() for cell in printed.out.splitlines()[0].split("|")] == [
        "",
        "",
        "a",
        "b",
        "ratio",
        "",
    ]
    assert printed.err == "note: settings differ in output_tokens: 8 and 9\n"
