"""`flare bench` as a whole, against a server whose pace is known."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_openai import MESSAGE_TOKENS, FakeServer
from typer.testing import CliRunner, Result

from flare.bench import SCENARIOS, BenchResult, read_result
from flare.bench.prompts import PromptWriter
from flare.cli import app

SIZES = (
    *("--requests", "2", "--prompt-tokens", "40", "--prompt-tokens", "160", "--prefix-tokens", "100"),
    *("--turns", "3", "--append-tokens", "30", "--branches", "2", "--output-tokens", "48"),
    *("--concurrency", "1", "--concurrency", "3", "--timeout", "20"),
)
LATE = 150.0  # ms that a busy machine may add to a time


def bench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def values(result: BenchResult, scenario: str, case: str) -> dict[str, list[float]]:
    figures = [figure for figure in result.scenarios[scenario].figures if figure.case == case]
    assert figures, [figure.case for figure in result.scenarios[scenario].figures]
    return {figure.measure: figure.values for figure in figures}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[BenchResult, FakeServer, str]:
    """All scenarios against a server with a prefix cache, that prefills a token in half a millisecond."""
    file = tmp_path_factory.mktemp("bench") / "new" / "fake.json"
    with FakeServer() as server:
        behaviour = server.behaviour
        behaviour.first_seconds, behaviour.token_seconds = 0.02, 0.005
        behaviour.prompt_token_seconds = 0.0005
        behaviour.caches = behaviour.continuous_usage = True
        behaviour.version = "1.2.3"
        run = bench(server.url, *SIZES, "--label", "Fake", "--version", "peer=4", "--json", file)
    assert run.exit_code == 0, run.output
    return read_result(file), server, run.stdout


def test_a_file_says_where_and_how_it_was_measured(measured: tuple[BenchResult, FakeServer, str]) -> None:
    result, _, _ = measured
    assert (result.label, result.model, result.server_version) == ("Fake", "fake-model", "1.2.3")
    assert (result.format, result.version, result.versions) == ("flare.bench", 1, {"peer": "4"})
    assert result.machine["cores"] >= 1
    assert (result.settings["output_tokens"], result.settings["endpoint"]) == (48, "chat")
    assert [*result.scenarios] == ["cold", "decode", "append", "branch", "extend", "repeat", "mixed"]
    assert result.failures == 0


def test_a_first_token_costs_what_the_prompt_costs(measured: tuple[BenchResult, FakeServer, str]) -> None:
    for tokens in (40, 160):
        cold = values(measured[0], "cold", f"{tokens} tokens")
        assert cold["prompt"] == [tokens, tokens]
        # Two prompts share their first word by chance at times.
        assert max(cold["cached"]) <= 2
        assert all(19 + 0.5 * tokens <= time <= 20 + 0.5 * tokens + LATE for time in cold["first token"])
        assert all(1000 * tokens / (20 + 0.5 * tokens + LATE) < rate < 2000 for rate in cold["prefill"])


def test_streams_decode_at_the_pace_of_the_server(measured: tuple[BenchResult, FakeServer, str]) -> None:
    result, server, _ = measured
    assert server.seen.most_open >= 3
    for streams, case in ((1, "1 stream"), (3, "3 streams")):
        decode = values(result, "decode", case)
        assert all(40 < rate <= 201 for rate in decode["per stream"])
        assert decode["total"] == pytest.approx([streams * rate for rate in decode["per stream"]])
        assert all(time >= 4.5 for time in decode["inter-token p50"])
        assert decode["inter-token p99"] >= decode["inter-token p50"]


def test_a_turn_costs_what_it_appends(measured: tuple[BenchResult, FakeServer, str]) -> None:
    turns = [values(measured[0], "append", f"turn {turn}") for turn in (1, 2, 3)]
    assert all(abs(tokens - 100) <= 1 for tokens in turns[0]["prompt"])
    for place, (before, turn) in enumerate(pairwise(turns)):
        for number in range(2):
            # "Tool result: " is two words, and two messages are new.
            assert abs(turn["appended"][number] - (32 + 2 * MESSAGE_TOKENS)) <= 2
            # The fake caches words, not what stands around messages.
            words = before["prompt"][number] - (1 + 2 * place) * MESSAGE_TOKENS
            assert turn["cached"][number] >= words
            computed = turn["prompt"][number] - turn["cached"][number]
            assert 19 + 0.5 * computed <= turn["first token"][number] <= 20 + 0.5 * computed + LATE


def test_branches_and_repeats_find_their_prefix(measured: tuple[BenchResult, FakeServer, str]) -> None:
    result = measured[0]
    first, alone = values(result, "branch", "first"), values(result, "branch", "next, alone")
    together = values(result, "branch", "2 at once")
    assert len(together["first token"]) == 4
    assert max(first["cached"]) <= 2
    assert min(*alone["cached"], *together["cached"]) >= 90
    new, again = values(result, "repeat", "first"), values(result, "repeat", "again")
    assert len(again["cached"]) == 4
    assert set(again["cached"]) == {new["prompt"][0] - MESSAGE_TOKENS}
    shorter, longer = values(result, "extend", "first"), values(result, "extend", "with a tail")
    assert len(longer["cached"]) == 6
    assert set(longer["cached"]) == {shorter["prompt"][0] - MESSAGE_TOKENS}
    assert {length - shorter["prompt"][0] for length in longer["prompt"]} == {30}
    assert all(19 <= time <= 20 + LATE for time in again["first token"])


def test_a_long_prompt_stalls_the_streams_beside_it(measured: tuple[BenchResult, FakeServer, str]) -> None:
    mixed = values(measured[0], "mixed", "160 tokens beside 2 streams")
    # 160 tokens of half a millisecond, in which the server draws nothing.
    assert all(time >= 75 for time in mixed["inter-token during, max"])
    assert all(time >= 4.5 for time in mixed["inter-token before, p50"])
    assert all(99 <= time <= 100 + 2 * LATE for time in mixed["first token"])
    for name in ("before", "during"):
        figures = zip(
            *(mixed[f"inter-token {name}, {label}"] for label in ("p50", "p99", "max")), strict=True
        )
        assert all(p50 <= p99 <= longest for p50, p99, longest in figures)


def test_a_table_per_scenario_is_printed(measured: tuple[BenchResult, FakeServer, str]) -> None:
    printed = measured[2]
    assert printed.startswith("Fake 1.2.3: medians")
    assert "| 3 streams |" in printed
    assert "engine share: not reported by this server" in printed


def test_no_two_prompts_share_a_beginning_and_the_body_is_the_users(server: FakeServer) -> None:
    body = '{"temperature": 0.7, "top_k": null, "extra": [1]}'
    arguments = ("--scenario", "cold", "--scenario", "decode", "--endpoint", "completions", "--body", body)
    assert bench(server.url, *SIZES, *arguments).exit_code == 0
    beginnings = {tuple(body["prompt"].split()[:6]) for body in server.seen.bodies}
    assert len(beginnings) == len(server.seen.bodies) == 2 + 2 * (2 + 4)
    assert set(server.seen.paths) == {"/v1/completions"}
    for sent in server.seen.bodies:
        assert (sent["temperature"], sent["top_p"], sent["extra"], sent["ignore_eos"]) == (
            0.7,
            0.95,
            [1],
            True,
        )
        assert "top_k" not in sent
        assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_two_clients_write_other_prompts() -> None:
    assert PromptWriter().write(20) != PromptWriter().write(20)


def test_prompts_are_as_long_as_wanted_in_other_vocabularies(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.tokens_per_word = 1.37
    file = tmp_path / "a.json"
    assert bench(server.url, *SIZES, "--scenario", "cold", "--json", file).exit_code == 0
    assert all(abs(tokens - 160) <= 4 for tokens in values(read_result(file), "cold", "160 tokens")["prompt"])


def test_joined_tokens_are_counted_from_usage(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.joined, server.behaviour.token_seconds = 4, 0.02
    file = tmp_path / "a.json"
    arguments = ("--scenario", "decode", "--concurrency", "1", "--output-tokens", "40", "--requests", "1")
    run = bench(server.url, *arguments, "--json", file)
    assert "joins several tokens" in run.stdout
    # Nine pauses of at least 20 ms bring four tokens each; one token each would be 50 a second at most.
    (rate,) = values(read_result(file), "decode", "1 stream")["total"]
    assert 50 < rate <= 205


def test_the_engine_share_is_the_servers(server: FakeServer) -> None:
    server.behaviour.metrics = "flare:step_period_seconds 0.002\nflare:program_seconds 0.0015\n"
    run = bench(server.url, *SIZES, "--scenario", "decode")
    line = next(line for line in run.stdout.splitlines() if "the server's last steps" in line)
    assert [cell.strip() for cell in line.split("|") if cell.strip()][1:] == ["2", "1.5", "25"]


def test_prompts_fit_the_context(server: FakeServer) -> None:
    server.behaviour.context = 160
    run = bench(server.url, *SIZES, "--scenario", "cold", "--scenario", "append")
    assert "136 prompt tokens instead of 160: the server's context is 160" in run.stdout
    assert "lower --turns, --append-tokens" in run.stdout
    assert run.exit_code == 1


def test_duration_ends_repetitions_and_not_cases(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert bench(server.url, *SIZES, "--scenario", "cold", "--duration", "0", "--json", file).exit_code == 0
    assert [len(figure.values) for figure in read_result(file).scenarios["cold"].figures[:1]] == [1]
    assert read_result(file).scenarios["cold"].requests == 2


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"fault": "status"}, "answered 503"),
        ({"fault": "error"}, "lost the device"),
        ({"fault": "malformed"}, "not OpenAI's"),
        ({"fault": "foreign"}, "not OpenAI's"),
        ({"fault": "cut"}, "without [DONE]"),
        ({"fault": "no usage"}, "no usage"),
        ({"fault": "silent"}, "no text"),
        ({"fault": "short"}, "asked for 48 tokens, the server drew 47"),
        ({"cached_tokens": 35}, "35 tokens of a fresh prompt were cached"),
    ],
)
def test_failed_requests_are_counted_and_shown(
    server: FakeServer, tmp_path: Path, behaviour: dict[str, Any], message: str
) -> None:
    server.behaviour.faulty_from = 2  # behind the calibration
    for name, value in behaviour.items():
        setattr(server.behaviour, name, value)
    file = tmp_path / "a.json"
    run = bench(server.url, *SIZES, "--scenario", "decode", "--scenario", "cold", "--json", file)
    assert run.exit_code == 1
    assert message in run.stdout
    result = read_result(file)
    errors = [*result.scenarios["decode"].errors, *result.scenarios["cold"].errors]
    assert any(message in error for error in errors)
    assert result.failures >= 1


def test_a_server_that_dies_leaves_what_was_measured(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.fault, server.behaviour.faulty_from = "dies", 2 + 4 + 2
    file = tmp_path / "a.json"
    arguments = ("--scenario", "cold", "--scenario", "decode", "--scenario", "mixed")
    run = bench(server.url, *SIZES, *arguments, "--json", file)
    assert run.exit_code == 1
    result = read_result(file)
    assert len(values(result, "cold", "160 tokens")["first token"]) == 2
    assert result.scenarios["cold"].errors == {}
    assert sum(result.scenarios["decode"].errors.values()) >= 2
    assert sum(result.scenarios["mixed"].errors.values()) >= 1


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [({"fault": "status"}, "answered 503"), ({"tokens_per_word": 0.0}, "its usage cannot be used")],
)
def test_a_server_that_cannot_be_measured_is_an_error(
    server: FakeServer, tmp_path: Path, behaviour: dict[str, Any], message: str
) -> None:
    for name, value in behaviour.items():
        setattr(server.behaviour, name, value)
    run = bench(server.url, *SIZES, "--json", tmp_path / "a.json")
    assert run.exit_code == 1
    assert run.stderr.startswith("flare: ")
    assert message in run.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "address of a server"),
        (("http://127.0.0.1:9",), 1, "no server answers"),
        (("http://",), 1, "flare: "),
        (("missing.core.safetensors",), 1, "neither an address"),
        (("x", "--body", "[1]"), 2, "not a JSON object"),
        (("x", "--version", "1"), 2, "not NAME=VERSION"),
        (("--compare", "missing.json", "other.json"), 1, "missing.json cannot be read: No such file"),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], status: int, message: str) -> None:
    run = bench(*arguments)
    assert run.exit_code == status
    assert message in run.stderr
    assert "Traceback" not in run.output


def test_files_are_compared(server: FakeServer, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, tokens in zip(files, ("8", "9"), strict=True):
        arguments = ("--scenario", "cold", "--label", file.stem, "--json", file, "--output-tokens", tokens)
        assert bench(server.url, *SIZES, *arguments).exit_code == 0
    run = bench("--compare", *files)
    assert run.exit_code == 0
    assert [cell.strip() for cell in run.stdout.splitlines()[0].split("|")] == ["", "", "a", "b", "ratio", ""]
    assert run.stderr == "note: settings differ in output_tokens: 8 and 9\n"


def test_a_core_is_served_and_measured(
    tiny_core: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = tmp_path / "tiny.json"
    sizes = (*SIZES, "--requests", "1", "--turns", "2", "--append-tokens", "20", "--prefix-tokens", "60")
    run = bench(tiny_core, *sizes, "--json", file)
    assert run.exit_code == 0, run.output
    written = json.loads(file.read_text())
    assert set(written["scenarios"]) == {"start", "steps", *SCENARIOS}
    result = read_result(file)
    assert values(result, "start", "process")["start to ready"][0] > 0
    assert values(result, "decode", "3 streams")["total"][0] > 1
    for part in ("plan", "submit", "program", "gap before the program"):
        steps = values(result, "steps", part)
        assert 0 < steps["1 stream p50"][0] <= steps["1 stream p99"][0], part
