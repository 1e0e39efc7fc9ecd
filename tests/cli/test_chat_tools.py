"""`flare chat --tools`: calls are shown and answered, by the user or by a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from agent_model import call
from chatting import TOOL, WEATHER_CALLS, chat, prompts, written
from live import TOKENIZER, LiveServer

from flare.cli.chat.tool_command import ToolCommand


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([TOOL]))
    return path


def python(code: str) -> str:
    """A command that runs `code`."""
    return f"{sys.executable} -c '{code}'"


def last_turn(server: LiveServer) -> str:
    """The last prompt, behind the first answer."""
    return prompts(server)[-1].partition("assistant: ")[2]


ECHO = 'import os, sys; print(os.environ["FLARE_TOOL_NAME"], sys.stdin.read())'


def test_results_are_typed(agent: LiveServer, tools: Path, tmp_path: Path) -> None:
    agent.engine.script = written(WEATHER_CALLS, "Sunny, and rain.")
    file = tmp_path / "rome.txt"
    file.write_text("rain\n")
    lines = f"Weather?\n/result nowhere\nsunny\n21 degrees\n\n/result {file}\n"
    result = chat(agent.url, "--tools", tools, stdin=lines)

    assert result.exit_code == 0, result.stderr
    assert result.stdout == "A moment.\nSunny, and rain.\n"
    assert 'call weather {"city": "Bern"}\n' in result.stderr
    assert 'call weather {"city": "Rom"}\n' in result.stderr
    assert "No such file" in result.stderr
    assert "reasoning:\nI look.\n" in result.stderr
    assert last_turn(agent) == (
        '<think>I look.</think>A moment.CALL weather {"city": "Bern"}CALL weather {"city": "Rom"}\n'
        "tool: sunny\n21 degrees\ntool: rain\n\nassistant: "
    )


def test_results_of_a_command(agent: LiveServer, tools: Path) -> None:
    agent.engine.script = written(WEATHER_CALLS, call("weather", city="Oslo"), "Done.")
    result = chat(agent.url, "Weather?", "--tools", tools, "--tool-command", python(ECHO), "--yes")

    assert (result.exit_code, result.stdout) == (0, "A moment.\nDone.\n")
    assert 'result of weather:\n  weather {"city": "Rom"}\n' in result.stderr
    assert last_turn(agent).count("tool: weather {") == 3


def test_rounds_are_bounded(agent: LiveServer, tools: Path) -> None:
    agent.engine.script = written(call("weather", city="Bern"))
    command = ["--tool-command", python(ECHO), "--yes", "--max-tool-rounds", "2"]
    result = chat(agent.url, "Weather?", "--tools", tools, *command)

    assert result.exit_code == 1
    assert len(prompts(agent)) == 3
    assert "Results were sent back 2 times" in result.stderr


def test_calls_without_results(agent: LiveServer, tools: Path) -> None:
    agent.engine.script = written(call("weather", city="Bern"))
    result = chat(agent.url, "Weather?", "--tools", tools)
    assert result.exit_code == 1
    assert result.stderr.endswith("flare: the answer waits for results of calls\n")


def test_a_question_goes_on_from_calls_without_results(
    agent: LiveServer, tools: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.json"
    named = {"name": "weather", "arguments": "{}"}
    calls = [{"id": "1", "type": "function", "function": named}]
    saved.write_text(
        json.dumps(
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": calls}]
        )
    )
    assert chat(agent.url, stdin=f"/load {saved}\nWell?\n").stdout == "hello\n"
    assert "CALL weather {}\ntool: There is no result.\nuser: Well?\n" in prompts(agent)[0]


def test_a_call_that_the_limit_cut_is_not_answered(agent: LiveServer, tools: Path) -> None:
    cut = "Well.\n" + call("weather", city="Bern and so on")
    agent.engine.script = written(cut)
    limit = len(TOKENIZER.encode(cut)) - 40
    result = chat(agent.url, "Weather?", "--tools", tools, "--max-tokens", str(limit))

    assert (result.exit_code, result.stdout) == (0, "Well.\n")
    assert "(cut: the limit of tokens was reached)" in result.stderr


def test_a_tool_that_was_not_offered_is_not_run(agent: LiveServer, tools: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    agent.engine.script = written(call("other"), "Sorry.")
    command = python(f'open("{mark}", "w")')
    result = chat(agent.url, "Weather?", "--tools", tools, "--tool-command", command, "--yes")

    assert (result.exit_code, result.stdout, mark.exists()) == (0, "Sorry.\n", False)
    assert "tool: There is no tool other.\n" in last_turn(agent)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("print(1); print(2)", "1\n2"),
        ("import sys; print(1); sys.exit(3)", "1\n[exit status 3]"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "\ufffd"),
        ("print(len(input()))", "100000"),
        ("import time; print(1, flush=True); time.sleep(60)", "1\n[stopped after 0.5 s]"),
        # What it started keeps its output open.
        ('import subprocess; subprocess.Popen(["sleep", "60"]); print(1)', "1\n[stopped after 0.5 s]"),
        ("import sys, time; sys.stdout.close(); time.sleep(60)", "[stopped after 0.5 s]"),
    ],
)
def test_ends_of_a_command(code: str, result: str) -> None:
    command = ToolCommand(python(code), 0.5 if "sleep" in code else 60)
    assert command.run("name", "x" * 100_000) == result


def test_a_command_that_never_stops_writing_is_cut() -> None:
    text = ToolCommand("yes", 60).run("name", "{}")
    assert text.endswith("\n[cut behind 1048576 bytes]")
    assert len(text) < 1_100_000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no tools"),
        ("3", "tool 0 must be"),
        ('{"name": "weather"}', "tool 0 must be"),
        ('[{"type": "function", "function": {}}]', "tool 0 has no name"),
        (json.dumps([TOOL, TOOL]), "tool 1: 'weather' occurs twice"),
        ('{"type": "function", "function": {"name": "a", "parameters": []}}', "must be a JSON schema"),
    ],
)
def test_files_that_define_no_tools(agent: LiveServer, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(content)
    result = chat(agent.url, "hello", "--tools", path)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"flare: {path}")
    assert words in result.stderr


def test_a_file_that_is_not_there(agent: LiveServer, tmp_path: Path) -> None:
    result = chat(agent.url, "hello", "--tools", tmp_path / "none.json")
    assert (result.exit_code, result.stderr) == (
        1,
        f"flare: {tmp_path / 'none.json'}: No such file or directory\n",
    )


def test_one_definition_is_enough(agent: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "tool.json"
    path.write_text(json.dumps(TOOL))
    assert chat(agent.url, "hello", "--tools", path).exit_code == 0
    assert '"name": "weather"' in prompts(agent)[0]


def test_commands_that_cannot_be(agent: LiveServer, tools: Path) -> None:
    for line, words in (("no-such-command", "there is no such command"), ("'", "No closing quotation")):
        result = chat(agent.url, "hello", "--tools", tools, "--tool-command", line, "--yes")
        assert result.exit_code == 1
        assert words in result.stderr
    # Nobody can be asked at the end of a pipe, and without tools there is nothing to run it for.
    assert chat(agent.url, "hello", "--tools", tools, "--tool-command", "cat").exit_code == 2
    assert chat(agent.url, "hello", "--tool-command", "cat", "--yes").exit_code == 2


def test_a_model_without_a_format_of_calls_takes_no_tools(tools: Path) -> None:
    with LiveServer() as server:
        result = chat(server.url, "hello", "--tools", tools)
    assert (result.exit_code, result.stderr) == (1, "flare: tiny/chat takes no tools\n")
