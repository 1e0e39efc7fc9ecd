"""Commands inside `flare chat`, images, and what of an answer is shown."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_model import agent_server
from chatting import chat, prompts, written
from drawn_pictures import PROFILE, data_url
from live import LiveServer, say
from PIL import Image

from flare.cli.chat.answer import Answer
from flare.cli.chat.history import History
from flare.cli.chat.images import image_part, question
from flare.cli.chat.model import Model
from flare.cli.visible import visible, visible_line
from flare.errors import RequestError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_another_answer_takes_the_place_of_the_last(agent: LiveServer) -> None:
    agent.engine.script = written("first", "second", "third")
    result = chat(agent.url, "--seed", "5", stdin="one\n/retry\ntwo\n")

    assert (result.exit_code, result.stdout) == (0, "first\nsecond\nthird\n")
    one, again, two = prompts(agent)
    assert one == again
    assert two == "user: one\nassistant: second\nuser: two\nassistant: "
    seeds = [submit.sampling.seed for submit in agent.engine.counters.submissions]
    assert seeds[0] != seeds[1]  # the same one would have given the same answer
    assert seeds[0] == seeds[2]


def test_a_question_is_taken_back(agent: LiveServer) -> None:
    result = chat(agent.url, stdin="one\ntwo\n/undo\nthree\n/undo\n/undo\n/undo\n/retry\n")

    assert "taken back: two\n" in result.stderr
    assert prompts(agent)[-1] == "user: one\nassistant: hello\nuser: three\nassistant: "
    assert "There is no question to take back.\nThere is nothing to answer.\n" in result.stderr


def test_the_system_message_and_the_effort_can_be_changed(agent: LiveServer) -> None:
    lines = "/system Be short.\n/effort none\none\n/system none\n/effort low\n/system\n/effort\ntwo\n"
    result = chat(agent.url, "--system", "Be long.", stdin=lines)

    first, second = prompts(agent)
    assert first == "system: Be short.\nuser: one\nthinking=False\nassistant: "
    assert second == "user: one\nassistant: hello\nuser: two\nassistant: "
    assert "system message: none\neffort: low (known: none)\n" in result.stderr


def test_a_conversation_is_saved_and_loaded(agent: LiveServer, tmp_path: Path) -> None:
    agent.engine.script = written("<think>Hm.</think>\n\nGrüezi \x1b[1m", "two")
    saved, other = tmp_path / "saved here.json", tmp_path / "other.json"
    other.write_text('{"a": 1}')
    result = chat(agent.url, stdin=f"Hallo\n/save {saved}\n/save {saved}\n/save {other}\n/quit\nlost\n")

    messages = json.loads(saved.read_text())
    assert messages == [
        {"role": "user", "content": "Hallo"},
        {"role": "assistant", "content": "Grüezi \x1b[1m", "reasoning_content": "Hm."},
    ]
    assert other.read_text() == '{"a": 1}'
    assert f"flare: {other} is no saved conversation" in result.stderr
    assert list(tmp_path.glob("*.partial")) == []

    assert chat(agent.url, stdin=f"/load {saved}\nmore\n").stdout == "two\n"
    assert prompts(agent)[-1] == (
        "user: Hallo\nassistant: <think>Hm.</think>Grüezi \x1b[1m\nuser: more\nassistant: "
    )
    assert len(prompts(agent)) == 2  # nothing behind /quit


@pytest.mark.parametrize(
    "content",
    [
        "[",
        "3",
        '[{"role": "robot", "content": ""}]',
        '[{"role": "user", "content": 3}]',
        '["user"]',
        '[{"role": "user", "content": "\\ud800"}]',
        '[{"role": "assistant", "content": "", "tool_calls": [1]}]',
    ],
)
def test_what_is_no_conversation_is_not_loaded(tmp_path: Path, content: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content)
    history = History("Be short.")
    with pytest.raises(RequestError, match="is no saved conversation"):
        history.load(path)
    assert history.messages == [{"role": "system", "content": "Be short."}]


def test_figures(agent: LiveServer) -> None:
    agent.engine.script = say("<think>Hm.</think>\n\nWell.", cached=5)
    result = chat(agent.url, stdin="one\ntwo\n/stats\n")

    figures = re.compile(
        r"\d+ prompt tokens \(5 cached\), \d+ drawn \((\d+) reasoning\), first token after \d+ ms"
    )
    assert [int(count) > 0 for count in figures.findall(result.stderr)] == [True, True]
    totals = re.search(r"2 answers: \d+ prompt tokens \(10 cached\), (\d+) drawn", result.stderr)
    submissions = agent.engine.counters.submissions
    drawn = int(totals[1]) // 2  # type: ignore[index]
    assert f"context: {len(submissions[1].prompt) + drawn} of 4096 tokens\n" in result.stderr


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("show", r"reasoning:\nI see\.\n"),
        ("brief", r"reasoning: \d+ tokens, \d+\.\d s\n"),
        ("hide", ""),
    ],
)
def test_reasoning_is_shown_as_told_and_never_an_answer(agent: LiveServer, mode: str, shown: str) -> None:
    agent.engine.script = say("<think>I see.</think>\n\nWell.")
    result = chat(agent.url, "--reasoning", mode, stdin="one\n/reasoning\n/reasoning hide\ntwo\n")

    assert result.stdout == "Well.\nWell.\n"
    figures = r"\d+ prompt .*\n"
    assert re.fullmatch(shown + figures + r"I see\.\n" + figures, result.stderr)


HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\x9b31md\re\x08\x7f\u202ef"
SHOWN = "a␛[2Jb␛]0;title␇c<U+009B>31md␍e␈␡<U+202E>f"


def test_no_control_character_of_a_model_is_shown(agent: LiveServer, tmp_path: Path) -> None:
    text = (
        f"<think>{HOSTILE}</think>\n\n{HOSTILE}<tool_call>\n<function={HOSTILE}>\n</function>\n</tool_call>"
    )
    tool = tmp_path / "tool.json"
    tool.write_text('{"type": "function", "function": {"name": "now"}}')
    for batch in (1, 1000):
        agent.engine.script = say(text, batch=batch)
        result = chat(agent.url, "Hi", "--tools", tool)

        assert result.stdout == SHOWN + "\n"
        assert result.stderr.count(SHOWN) == 3  # reasoning, the call, the question for its result
        assert set(filter(lambda c: ord(c) < 32 or 127 <= ord(c) < 160, result.stderr)) == {"\n"}


def test_texts_without_control_characters_are_shown_as_they_are() -> None:
    text = "Grüezi 🇨🇭 👩‍👩‍👧\n\tשלום"
    assert visible(text) == text
    assert visible("a\r\nb\ud800") == "a\nb\ufffd"
    assert visible_line("a\nb\tc") == "a␊b␉c"


@pytest.fixture(scope="module")
def seeing() -> Iterator[LiveServer]:
    """A server whose model takes images."""
    with agent_server(images=PROFILE) as server:
        yield server


def test_images_travel_with_a_question(seeing: LiveServer, tmp_path: Path) -> None:
    files = [tmp_path / "red.png", tmp_path / "blue.png"]
    for file, color in zip(files, ("red", "blue"), strict=True):
        Image.new("RGB", (64, 64), color).save(file)
    lines = f"What?\n/image {files[1]} {data_url(32, 32)}\nAnd these?\nWell?\n/undo\n/undo\nAgain?\n"
    result = chat(seeing.url, "--image", files[0], stdin=lines)
    assert result.stdout == "hello\n" * 4
    submissions = seeing.engine.counters.submissions
    assert [len(submit.images) for submit in submissions] == [1, 3, 3, 3]
    images = [[placed.identity for placed in submit.images] for submit in submissions]
    assert images[1][0] == images[0][0]
    assert images[3] == images[1]  # taken back with the question, they go with the next one


def test_kinds_of_images(tmp_path: Path) -> None:
    for name, start, kind in (
        ("a", PNG, "png"),
        ("b", b"\xff\xd8\xff\xe0", "jpeg"),
        ("c", b"GIF89a", "gif"),
        ("d", b"RIFF\0\0\0\0WEBPVP8 ", "webp"),
    ):
        (tmp_path / name).write_bytes(start)
        url = f"data:image/{kind};base64,{base64.b64encode(start).decode()}"
        assert image_part(str(tmp_path / name)) == {"type": "image_url", "image_url": {"url": url}}
        assert image_part(url) == image_part(str(tmp_path / name))
    part = image_part("https://example.org/x.png")
    assert question("What?", [part]) == [part, {"type": "text", "text": "What?"}]


def test_a_model_that_takes_no_images_says_so(agent: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    result = chat(agent.url, stdin=f"/image '{tmp_path}/a b.png'\nWhat?\n")

    assert result.stderr.startswith("flare: tiny/chat takes no images\n")
    assert prompts(agent) == ["user: What?\nassistant: "]

    one = chat(agent.url, "What?", "--image", tmp_path / "a b.png")
    assert (one.exit_code, one.stdout, one.stderr) == (1, "", "flare: tiny/chat takes no images\n")
    # Of a server that tells nothing, the refusal is its own, and the next question has no image.
    conversation = tmp_path / "saved.json"
    part = image_part(str(tmp_path / "a b.png"))
    conversation.write_text(json.dumps([{"role": "user", "content": question("What?", [part])}]))
    loaded = chat(agent.url, stdin=f"/load {conversation}\n/retry\nNo?\n")
    assert "parts of type 'image_url' are not served by this model" in loaded.stderr
    assert loaded.stdout == "hello\n"
    assert prompts(agent)[-1] == "user: No?\nassistant: "


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nowhere.png", "nowhere.png: No such file or directory"),
        ("text.png", "text.png is no image in PNG, JPEG, GIF or WebP"),
        ("data:text/plain,x", "'data:text/plain,x' is the address of no image"),
    ],
)
def test_what_is_no_image(seeing: LiveServer, tmp_path: Path, given: str, words: str) -> None:
    (tmp_path / "text.png").write_text("words")
    given = given if given.startswith("data:") else str(tmp_path / given)
    result = chat(seeing.url, "What?", "--image", given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr

    inside = chat(seeing.url, stdin=f"/image {given}\nWhat?\n")
    assert inside.stdout == "hello\n"
    assert inside.stderr.startswith("flare: ")
    assert words.partition(": ")[2] in inside.stderr


def test_what_servers_say_of_a_model() -> None:
    told = Model.of(
        {
            "id": "m",
            "max_model_len": 64,
            "chat": {"images": False, "tools": True, "efforts": ["low"], "thinking_switch": True},
        }
    )
    assert (told.name, told.context, told.efforts) == ("m", 64, ["none", "low"])
    told.require("tools")
    with pytest.raises(RequestError, match="m takes no images"):
        told.require("images")
    silent = Model.of({"id": "m", "max_model_len": None, "chat": None})
    silent.require("images")
    assert (silent.context, silent.efforts) == (None, [])


def test_slashes(agent: LiveServer) -> None:
    lines = "/help\n/nothing\n/quit now\n/save\n/image '\n/reasoning loud\n//etc is what?\n"
    result = chat(agent.url, stdin=lines)

    commands = re.findall(r"^(/\w+)", result.stderr, re.MULTILINE)
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert set(re.findall(r"`(/\w+)", page.split("\n| command | |\n")[1])) == {*commands, "/result"}
    errors = [line for line in result.stderr.splitlines() if line.startswith("flare: ")]
    assert len(errors) == 5
    assert prompts(agent) == ["user: /etc is what?\nassistant: "]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields}]}


def test_an_answer_that_was_stopped_keeps_what_came_but_no_call() -> None:
    answer = Answer()
    answer.take(delta(reasoning="Hm"), 1.0)
    answer.take(delta(content="We"), 2.0)
    function = {"name": "now", "arguments": "{}"}
    answer.take(delta(tool_calls=[{"index": 0, "id": "1", "function": function}]), 3.0)
    answer.stopped = True

    assert answer.message == {"role": "assistant", "content": "We", "reasoning_content": "Hm"}
    assert (answer.asked, answer.first, answer.last) == ([], 1.0, 3.0)
    assert Answer(stopped=True).message is None
