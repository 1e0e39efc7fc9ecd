"""The page at `/` as it is sent: who gets it, under which policy, and what the server tells it."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import httpx
import pytest
from agent_model import agent_assets
from live import LiveServer
from test_image_requests import with_images

from flare import __version__
from flare.contract import DefaultSampling, TemplateKind
from flare.frontend import FrontendAssets, Prompts
from flare.server.facts import chat_facts, sampling_facts
from flare.server.page.accept import wants_html
from flare.server.page.files import page_files
from flare.testing.tiny_text import tiny_assets

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
WHO = {"server": "flare", "version": __version__}


def test_browsers_get_the_page(server: LiveServer, http: httpx.Client) -> None:
    answer = http.get("/", headers=BROWSER)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    assert answer.text.startswith("<!doctype html>")
    head = http.head("/", headers=BROWSER)
    assert head.status_code == 200
    assert head.content == b""
    own = {"date": "", "x-request-id": ""}
    assert {**head.headers, **own} == {**answer.headers, **own}


@pytest.mark.parametrize(
    "headers", [{}, {"accept": "application/json"}, {"accept": "application/json, text/html;q=0.5"}]
)
def test_programs_get_who_answers(server: LiveServer, http: httpx.Client, headers: dict[str, str]) -> None:
    answer = http.get("/", headers=headers)

    assert answer.json() == WHO
    assert answer.headers["vary"] == "accept"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (BROWSER["accept"], True),
        ("text/html", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("application/json;q=0.9, text/html", True),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("text/html;q=0", False),
        ("text/html;q=often", False),
        ("application/json, text/plain, */*", False),
        ("text/html;q=0.8, application/json", False),
    ],
)
def test_who_wants_html(accept: str, wanted: bool) -> None:
    assert wants_html(accept) is wanted


def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup(
    server: LiveServer, http: httpx.Client
) -> None:
    policy = http.get("/", headers=BROWSER).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["img-src"] == "'self' data:"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert rules["trusted-types"] == "'none'"
    for name, file in page_files().items():
        text = file.content.decode()
        # Addresses are only named: the specifications in comments, the names of SVG elements.
        loaded = re.sub(
            r"//.*|/\*.*?\*/|http://www\.w3\.org/2000/svg",
            "",
            text,
            flags=re.DOTALL if name.endswith(".css") else 0,
        )
        assert "http://" not in loaded, name
        assert "style=" not in text, name
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert forbidden not in text, name


def test_every_file_is_reached_and_every_reference_exists(server: LiveServer, http: httpx.Client) -> None:
    """From the page through its scripts, as a browser goes."""
    files = page_files()
    seen, left = {"index.html"}, ["index.html"]
    while left:
        name = left.pop()
        text = files[name].content.decode()
        found = re.findall(r'(?:src|href)="page/([^"]+)"', text) + re.findall(r'from "\./([^"]+)"', text)
        for other in set(found) - seen:
            seen.add(other)
            left.append(other)
    assert seen == set(files)

    types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name, file in files.items():
        answer = http.get(f"/page/{name}")
        assert answer.content == file.content
        assert answer.headers["content-type"].split(";")[0] == types[name.rpartition(".")[2]]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        again = http.get(f"/page/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert sum(len(file.content) for file in files.values()) < 120_000


@pytest.mark.parametrize("name", ["nothing.js", "__init__.py", "..%2ffiles.py", "%2e%2e/files.py", ""])
def test_only_files_of_the_page_are_sent(server: LiveServer, http: httpx.Client, name: str) -> None:
    assert http.get(f"/page/{name}").status_code == 404


def test_looking_again_and_again_leaves_no_lines(
    server: LiveServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "flare.request"):
        for path in ("/metrics", "/health", "/ready", "/page/main.js", "/page/nothing", "/version"):
            http.get(path)
        server.wait(lambda: len(caplog.records) == 6)
    levels = {record.fields["path"]: record.levelno for record in caplog.records}  # type: ignore[attr-defined]

    shown = {path for path, level in levels.items() if level >= logging.INFO}
    assert shown == {"/page/nothing", "/version"}


def facts(assets: FrontendAssets) -> dict[str, object] | None:
    return chat_facts(assets.frontend, Prompts(assets))


EFFORTS = (
    "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'high') %}"
    "{{ raise_exception('no') }}{% endif %}x"
)


def test_what_a_model_takes_is_told(server: LiveServer, http: httpx.Client) -> None:
    plain = {"images": False, "tools": False, "reasoning": False, "efforts": [], "thinking_switch": False}
    model = http.get("/v1/models").json()["data"][0]

    assert model["chat"] == plain
    assert model["sampling"]["temperature"] == {"default": 1.0, "low": 0.01, "high": 2.0}
    assert facts(with_images()) == {**plain, "images": True}
    agent = {**plain, "tools": True, "reasoning": True, "thinking_switch": True}
    assert facts(agent_assets()) == agent
    assert facts(tiny_assets(template=EFFORTS)) == {**plain, "efforts": ["low", "high"]}
    assert facts(tiny_assets(template=None)) is None


def test_a_parameter_without_a_range_is_its_default() -> None:
    assets = tiny_assets()
    fixed = assets.frontend.default_sampling.model_copy(
        update={
            "top_p": 0.9,
            "ranges": assets.frontend.default_sampling.ranges.model_copy(update={"top_p": None}),
        }
    )
    assert isinstance(fixed, DefaultSampling)
    found = sampling_facts(assets.frontend.model_copy(update={"default_sampling": fixed}))

    assert found["top_p"] == {"default": 0.9, "low": 0.9, "high": 0.9}
    assert found["min_p"] == {"default": 0.0, "low": 0.0, "high": 1.0}


def test_a_template_kind_without_chats_has_no_facts() -> None:
    assets = tiny_assets()
    silent = assets.frontend.model_copy(update={"template_kind": TemplateKind.NONE})

    assert chat_facts(silent, Prompts(replace(assets, frontend=silent))) is None
