"""The page in a browser: tools, images, keys, what the server is doing, and small windows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import httpx
import pytest
from agent_model import call
from browser import Visit
from live import LiveServer, chatter, say
from picture_samples import encoded
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from flare.server import ApiKeys, ServerSettings
from flare.testing.tiny_text import tiny_assets

TOOL = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}


def test_a_call_and_its_result(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Tools").click()
    tools = page.get_by_label("Tools as JSON")
    tools.fill("[{")
    expect(page.locator("#tools-found")).to_contain_text("not a list of tools")
    page.keyboard.press("Escape")
    visit.say("What is a row?")
    expect(page.get_by_role("alert")).to_contain_text("The tools are not a list of functions")
    expect(page.locator("#text")).to_have_value("What is a row?")
    assert visit.asked() == []

    page.get_by_role("button", name="Tools").click()
    tools.fill(json.dumps(TOOL))
    expect(page.locator("#tools-found")).to_have_text("Tools: look_up")
    page.keyboard.press("Escape")
    page.locator("#text").focus()
    unfinished = call("look_up", word="row " * 2000).partition("</parameter>")[0]
    visit.server.engine.script = say(unfinished, delay=0.01)
    page.keyboard.press("Enter")
    card = visit.answer(state="streaming").locator(".call")
    expect(card).to_contain_text("being written")
    expect(card.locator("code")).to_contain_text('{"word": "row row')
    page.keyboard.press("Escape")
    expect(visit.answer(state="stopped").locator(".call")).to_contain_text("cut off")
    expect(page.get_by_label("Result of look_up")).to_have_count(0)

    words = ("row", "rowing", "rows")
    visit.server.engine.script = say("Two." + "".join(call("look_up", word=word) for word in words))
    page.get_by_role("button", name="Regenerate").click()
    answer = visit.answer()
    expect(answer.locator(".call b")).to_have_text(["look_up"] * 3)
    expect(answer.locator(".call code")).to_have_text([json.dumps({"word": w}, indent=2) for w in words])

    boxes = page.get_by_label("Result of look_up")
    expect(boxes).to_have_count(3)
    for index, text in enumerate(("a line", "with oars", "")):
        boxes.nth(index).fill(text)
    visit.server.engine.script = say("A line.")
    boxes.last.press("Control+Enter")
    expect(visit.answer(1).locator(".markdown")).to_have_text("A line.")
    tool = {"type": "function", "function": TOOL}
    calls = "".join(f"CALL look_up {json.dumps({'word': word})}" for word in words)
    asked = f"TOOLS {json.dumps([tool])}\nuser: What is a row?\nassistant: "
    assert visit.asked() == [
        asked,
        asked,
        f"{asked}Two.{calls}\ntool: a line\ntool: with oars\ntool: \nassistant: ",
    ]


def picture(colour: str) -> bytes:
    return encoded(Image.new("RGB", (16, 16), colour))


def give(place: Locator, event: str, content: bytes, kind: str = "image/png") -> None:
    """A `paste` or a `drop` of one file."""
    place.evaluate(
        """(place, [event, bytes, type]) => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(bytes)], "one", { type }));
            const common = { bubbles: true, cancelable: true };
            place.dispatchEvent(event === "drop"
                ? new DragEvent(event, { dataTransfer: files, ...common })
                : new ClipboardEvent(event, { clipboardData: files, ...common }));
        }""",
        [event, list(content), kind],
    )


def test_images_are_picked_pasted_and_dropped(visit: Visit) -> None:
    page = visit.page
    text = page.locator("#text")
    contents = [picture(colour) for colour in ("red", "green", "blue", "white")]
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add images").click()
    files = [{"name": "a.png", "mimeType": "image/png", "buffer": content} for content in contents[:2]]
    chooser.value.set_files(files)  # type: ignore[arg-type]
    thumbnails = page.locator("#composer .pictures img")
    expect(thumbnails).to_have_count(2)
    give(text, "paste", contents[2])
    expect(thumbnails).to_have_count(3)
    give(page.locator("#messages"), "drop", contents[3])
    expect(thumbnails).to_have_count(4)
    page.get_by_role("button", name="Remove image 2").click()
    give(text, "paste", b"<svg/>", "image/svg+xml")
    expect(page.get_by_role("alert")).to_contain_text("only PNG, JPEG, WebP and GIF")
    visit.say("Which colours?")
    visit.answer()

    expect(page.locator(".message.user img")).to_have_count(3)
    expect(thumbnails).to_have_count(0)
    (submit,) = visit.server.engine.counters.submissions
    assert [image.tokens for image in submit.images] == [4, 4, 4]
    kept = [contents[0], *contents[2:]]
    parts = [{"type": "image_url", "image_url": {"url": data_address(content)}} for content in kept]
    message = {"role": "user", "content": [*parts, {"type": "text", "text": "Which colours?"}]}
    httpx.post(f"{visit.server.url}/v1/chat/completions", json={"messages": [message]})
    same = visit.server.engine.counters.submissions[1]
    assert [image.identity for image in submit.images] == [image.identity for image in same.images]
    assert submit.prompt == same.prompt


def data_address(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


@pytest.fixture(scope="module")
def plain() -> Iterator[LiveServer]:
    """A model that takes text only, behind a key."""
    with LiveServer(ServerSettings(api_keys=ApiKeys(("right",)))) as server:
        yield server


def test_a_key_is_asked_for_and_kept_in_the_tab(tab: Page, plain: LiveServer) -> None:
    tab.set_viewport_size({"width": 1200, "height": 800})
    tab.goto(plain.url)
    dialog = tab.get_by_role("dialog", name="API key")
    expect(dialog).to_contain_text("no API key was sent")
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_label("Key").press("Enter")
    expect(dialog).to_contain_text("not one of this server's")
    dialog.get_by_label("Key").fill("right")
    dialog.get_by_role("button", name="Use it").click()
    expect(tab.locator("#model")).to_have_text("tiny/chat")
    tab.reload()
    expect(tab.locator("#model")).to_have_text("tiny/chat")
    tab.locator("#text").fill("Hello")
    tab.locator("#text").press("Enter")
    expect(tab.locator(".markdown")).to_have_text("hello")
    assert tab.evaluate("localStorage.length") == 0
    assert "right" in tab.evaluate("sessionStorage.getItem('flare.key')")

    # What this model does not take is not offered.
    for hidden in ("#attach", "#open-tools"):
        expect(tab.locator(hidden)).to_be_hidden()
    tab.get_by_role("button", name="Options").click()
    expect(tab.get_by_label("Temperature")).to_have_attribute("placeholder", "1")
    expect(tab.get_by_label("Reasoning")).to_be_hidden()
    tab.keyboard.press("Escape")
    give(tab.locator("#text"), "paste", picture("red"))
    expect(tab.get_by_role("alert")).to_have_text("This model takes no images.")
    expect(tab.locator("#composer .pictures img")).to_have_count(0)


def test_a_model_without_chats_says_so(tab: Page) -> None:
    with LiveServer(assets=tiny_assets(template=None)) as server:
        visit = Visit(tab, server)
        expect(tab.get_by_role("alert")).to_contain_text("no chat template")
        expect(tab.locator("#text")).to_be_disabled()
        visit.leave()
        tab.goto("about:blank")


def test_the_panel_shows_what_the_server_does_while_it_is_seen(tab: Page, talker: LiveServer) -> None:
    talker.reset()
    visit = Visit(tab, talker, width=390)
    # Nothing is wider than a phone, also with a long line of code.
    talker.engine.script = say("```\n" + "wide " * 60 + "\n```\n" + "x" * 200)
    visit.say("Hello")
    visit.answer()
    assert tab.evaluate("document.scrollingElement.scrollWidth") == 390
    assert not any(url.endswith("/metrics") for url in visit.addresses)

    talker.engine.script = chatter(delay=0.02)
    visit.say("Sing")
    visit.answer(1, "streaming")
    tab.get_by_role("button", name="Conversations and status").click()
    status = tab.get_by_role("region", name="Server")
    expect(status).to_contain_text("Ready")
    expect(status).to_contain_text("1 running, 0 waiting")
    # The key that closes it stops no answer.
    tab.keyboard.press("Escape")
    expect(status).to_be_hidden()
    tab.get_by_role("button", name="Stop").click()
    visit.answer(1, "stopped")
    visit.leave()
