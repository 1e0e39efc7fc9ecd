"""A headless Chromium that looks at the page, and a model for it to talk to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from agent_model import FORM, with_context
from live import TOKENIZER, LiveServer
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Request, sync_playwright
from test_image_requests import PROFILE

from flare.engine.messages import Submit
from flare.frontend import FrontendAssets
from flare.server import ServerSettings
from flare.testing.tiny_text import START, tiny_assets

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TEMPLATE = (
    "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'high') %}"
    "{{ raise_exception('no such effort') }}{% endif %}"
    "{% if reasoning_effort is defined %}effort={{ reasoning_effort }}\n{% endif %}"
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{{ part.text if part.type == 'text' else '" + START + "' }}{% endfor %}{% endif %}"
    "{% for call in message.tool_calls or [] %}CALL {{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}assistant: "
)


def page_assets() -> FrontendAssets:
    """A model that reasons, calls tools, takes images and has two efforts."""
    assets = tiny_assets(template=TEMPLATE)
    return replace(assets, frontend=assets.frontend.model_copy(update={"output": FORM, "images": PROFILE}))


@contextmanager
def page_server(settings: ServerSettings | None = None) -> Iterator[LiveServer]:
    """A server of that model."""
    with LiveServer(settings, assets=page_assets()) as server:
        with_context(server, 4096)
        yield server


def prompt_of(submit: Submit) -> str:
    """What the engine was given, as text."""
    return TOKENIZER.decode(submit.prompt, skip_special=False)


@contextmanager
def chromium() -> Iterator[Page]:
    """A tab. Skips the test where there is no browser, and fails it where
    FLARE_BROWSER_REQUIRED is set."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"none of {', '.join(NAMES)} is on the PATH; scripts/browser installs one"
        if os.environ.get("FLARE_BROWSER_REQUIRED"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as driver:
        # Chromium has no sandbox for root. It looks at this machine's own page only.
        options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = driver.chromium.launch(executable_path=found, args=options)
        page = browser.new_context().new_page()
        page.set_default_timeout(20_000)
        yield page
        browser.close()


class Visit:
    """The page of `server` in the tab `page`, as if nobody had been there, and everything that went wrong in
    it or left for another server. Opening a tab takes longer than most tests."""

    def __init__(self, page: Page, server: LiveServer, width: int = 1200) -> None:
        self.server = server
        self.page = page
        self.faults: list[str] = []
        self.addresses: list[str] = []
        page.set_viewport_size({"width": width, "height": 800})
        # Leaving a page keeps its conversations: they are forgotten elsewhere.
        page.goto(f"{server.url}/version")
        page.evaluate("sessionStorage.clear()")
        page.on("pageerror", self._failed)
        page.on("console", self._spoke)
        page.on("request", self._asked)
        page.goto(server.url)
        page.locator("#model", has_text="tiny").wait_for()

    def _failed(self, error: Error) -> None:
        self.faults.append(str(error))

    def _spoke(self, message: ConsoleMessage) -> None:
        # Answers of the API that are no success are told by the browser itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _asked(self, request: Request) -> None:
        self.addresses.append(request.url)

    def leave(self) -> None:
        """The page was faultless and spoke to nobody else."""
        self.page.remove_listener("pageerror", self._failed)
        self.page.remove_listener("console", self._spoke)
        self.page.remove_listener("request", self._asked)
        self.page.unroute_all()
        assert self.faults == []
        assert all(url.startswith((f"{self.server.url}/", "data:")) for url in self.addresses), self.addresses

    def say(self, text: str) -> None:
        """Type a message and send it."""
        self.page.locator("#text").fill(text)
        self.page.locator("#text").press("Enter")

    def answer(self, number: int = 0, state: str = "done") -> Locator:
        """The answer `number` of those that are shown, when it is in `state`."""
        found = self.page.locator(".answer").nth(number)
        self.page.locator(".answer").nth(number).and_(self.page.locator(f"[data-state={state}]")).wait_for()
        return found

    def asked(self) -> list[str]:
        """Prompts that reached the engine."""
        return [prompt_of(submit) for submit in self.server.engine.counters.submissions]
