"""The page in a browser: messages, answers, errors and branches."""

from __future__ import annotations

import re

import httpx
import pytest
from browser import Visit
from live import chatter, say
from playwright.sync_api import expect

from flare.errors import UnavailableError
from flare.testing.scripted_engine import Script

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
MARKDOWN = f"""## A title

Some **bold**, *slanted* and `code`, but {MARKUP} and [no](javascript:alert(3)).

1. one
   - inner
2. two

```python
x = "<b>"
```

| a | b |
|---|---|
| 1 | 2 |
"""


def test_an_answer_with_its_figures(visit: Visit) -> None:
    visit.server.engine.script = say(MARKDOWN, cached=7)
    visit.say("Hello\nthere")
    answer = visit.answer()
    text = answer.locator(".markdown")

    (prompt,) = visit.asked()
    assert prompt == "user: Hello\nthere\nassistant: "
    expect(visit.page.locator(".said")).to_have_text("Hello\nthere", use_inner_text=True)
    expect(text.locator("h4")).to_have_text("A title")
    expect(text.locator("strong, em, p > code")).to_have_text(["bold", "slanted", "code"])
    expect(text.locator("ol > li > ul > li")).to_have_text("inner")
    expect(text.locator("pre")).to_have_text('x = "<b>"')
    expect(text.locator("td")).to_have_text(["1", "2"])
    # Nothing that the model writes is markup, or an address that runs.
    expect(text.locator("p").first).to_contain_text(f"but {MARKUP} and [no](javascript:alert(3)).")
    expect(text.locator("img, script, a")).to_have_count(0)
    (submit,) = visit.server.engine.counters.submissions
    figures = answer.locator(".figures")
    expect(figures).to_contain_text(f"7 of {len(submit.prompt)} prompt tokens cached")
    expect(figures).to_contain_text("first token 0.")
    output = len(visit.server.engine.script(submit).tokens)
    expect(figures).to_contain_text(f"{output} tokens")


def test_reasoning_streams_folded_and_stop_keeps_what_came(visit: Visit) -> None:
    visit.server.engine.script = say("<think>Let me see.</think>Yes. " + "More. " * 500, delay=0.02)
    visit.say("Is it?")
    answer = visit.answer(state="streaming")
    # As many as the API counts for the same output.
    body = {"messages": [{"role": "user", "content": "Is it?"}], "max_tokens": 60}
    usage = httpx.post(f"{visit.server.url}/v1/chat/completions", json=body).json()["usage"]
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    reasoning = answer.locator("details")
    expect(answer.locator(".markdown")).to_contain_text("Yes. More.")

    expect(reasoning).not_to_have_attribute("open", "")
    expect(reasoning.locator("summary")).to_have_text(f"Reasoning · {counted} tokens")
    reasoning.locator("summary").click()
    expect(reasoning.locator(".thought")).to_have_text("Let me see.")
    visit.page.keyboard.press("Escape")
    visit.answer(state="stopped")
    expect(answer.locator(".markdown")).to_contain_text("Yes. More.")
    visit.server.wait(lambda: visit.server.engine.counters.cancelled == 1)

    visit.server.engine.script = say("Fine.")
    visit.say("Enough")
    visit.answer(1)
    assert visit.asked()[2].startswith("user: Is it?\nassistant: <think>Let me see.</think>Yes. More.")
    assert visit.asked()[2].endswith("\nuser: Enough\nassistant: ")


def test_what_the_server_refuses_is_said_and_nothing_is_lost(visit: Visit) -> None:
    page = visit.page
    page.locator("#open-options").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("System prompt").fill("Be brief.")
    page.keyboard.press("Escape")
    visit.say("A question")
    answer = visit.answer(state="failed")

    expect(answer.get_by_role("alert")).to_contain_text("temperature must be above 0")
    expect(page.locator(".said")).to_have_text("A question")
    assert visit.asked() == []

    page.locator("#open-options").click()
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Longest answer, tokens").fill("9")
    page.get_by_label("Reasoning").select_option("high")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Try again").click()
    expect(visit.answer()).to_contain_text("hello")
    expect(page.locator(".answer")).to_have_count(1)
    (submit,) = visit.server.engine.counters.submissions
    assert (submit.sampling.temperature, submit.max_tokens) == (0.5, 9)
    assert visit.asked() == ["effort=high\nsystem: Be brief.\nuser: A question\nassistant: "]


@pytest.mark.parametrize("broken", ["admission", "middle", "network"])
def test_a_failure_keeps_what_there_is(visit: Visit, broken: str) -> None:
    message = "execution failed"
    if broken == "network":
        message = "cannot be reached"
        visit.page.route("**/v1/chat/completions", lambda route: route.abort())
    elif broken == "admission":
        message = "too many requests wait"
        refusal = UnavailableError(message)
        visit.server.engine.script = lambda submit: Script(tokens=[5], refusal=refusal)
    else:
        visit.server.engine.script = chatter(fail_after=8)
    visit.page.locator("#text").fill("A question")
    visit.page.get_by_role("button", name="Send").click()
    answer = visit.answer(state="failed")

    expect(answer.get_by_role("alert")).to_contain_text(message)
    expect(visit.page.locator(".said")).to_have_text("A question")
    expect(answer.locator(".markdown")).to_have_text(re.compile("la la" if broken == "middle" else "^$"))


def test_an_edited_message_is_a_branch(visit: Visit) -> None:
    page = visit.page
    visit.say("one")
    visit.answer()
    visit.server.engine.script = say("second")
    visit.say("two")
    visit.answer(1)
    # Up edits the last message, here of an empty field.
    page.locator("#text").press("ArrowUp")
    page.get_by_label("Edited message").fill("three")
    visit.server.engine.script = say("third", cached=11)
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text(["one", "three"])
    expect(visit.answer(1)).to_contain_text("11 of")
    assert visit.asked()[-1] == "user: one\nassistant: hello\nuser: three\nassistant: "

    visit.server.engine.script = say("fourth")
    page.locator(".answer").nth(0).get_by_role("button", name="Regenerate").click()
    expect(page.locator(".said")).to_have_text(["one"])
    expect(visit.answer()).to_contain_text("fourth")
    expect(page.locator(".branches")).to_have_text("‹2 / 2›")
    page.get_by_role("button", name="Earlier branch").click()
    expect(page.locator(".markdown")).to_have_text(["hello", "third"])
    page.get_by_role("button", name="Earlier branch").nth(1).click()
    expect(page.locator(".markdown")).to_have_text(["hello", "second"])

    page.reload()
    expect(page.locator(".said")).to_have_text(["one", "two"])
    expect(page.locator(".markdown")).to_have_text(["hello", "second"])
    page.get_by_role("button", name="New conversation").first.click()
    expect(page.locator(".message")).to_have_count(0)
    page.locator("#conversations").get_by_role("button", name="one", exact=True).click()
    expect(page.locator(".said")).to_have_text(["one", "two"])
    other = visit.page.context.new_page()
    other.goto(visit.server.url)
    expect(other.locator("#model")).to_have_text("tiny/chat")
    expect(other.locator(".message")).to_have_count(0)
    other.close()


def test_a_reload_ends_a_stream_and_keeps_the_draft(visit: Visit) -> None:
    visit.server.engine.script = chatter(delay=0.02)
    visit.say("Sing")
    expect(visit.answer(state="streaming").locator(".markdown")).to_contain_text("la la")
    visit.page.locator("#text").fill("and then")
    visit.page.locator("#text").press("Shift+Enter")
    visit.page.reload()

    expect(visit.answer(state="stopped").locator(".markdown")).to_contain_text("la la")
    expect(visit.page.locator("#text")).to_have_value("and then\n")
    visit.server.wait(lambda: visit.server.engine.running == 0)
