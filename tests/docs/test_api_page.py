"""The pages for users name everything a user can say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flare.server import unserved
from flare.server.requests import ChatRequest, CompletionRequest, StreamOptions

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def section(title: str) -> str:
    """Text of one section, up to the next title."""
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> set[str]:
    """First cells of a section's table."""
    return set(re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE))


@pytest.mark.parametrize(
    ("model", "title"),
    [(ChatRequest, "Parameters of chat"), (CompletionRequest, "Parameters of completions")],
)
def test_every_field_of_a_request_has_a_row(
    model: type[ChatRequest] | type[CompletionRequest], title: str
) -> None:
    assert rows("Parameters of both generation endpoints") | rows(title) == set(model.model_fields)


def test_every_stream_option_is_explained() -> None:
    for name in StreamOptions.model_fields:
        assert f"`{name}`" in section("Parameters of both generation endpoints")


def test_every_refused_field_is_listed() -> None:
    text = section("Clamped, refused, ignored")

    for name in (*unserved._NEUTRAL, *unserved._ON_BY_DEFAULT):
        assert f"`{name}`" in text, name


def test_every_path_is_listed() -> None:
    from flare.engine.messages import Submit
    from flare.server import ServerSettings, create_app
    from flare.testing.scripted_engine import Script, ScriptedEngine
    from flare.testing.tiny_text import tiny_assets

    def silent(submit: Submit) -> Script:
        return Script(tokens=[])

    app = create_app(
        model_name="m", assets=tiny_assets(), engine=ScriptedEngine(silent), settings=ServerSettings()
    )
    paths = app.openapi()["paths"]
    assert "/v1/chat/completions" in paths
    for path in paths:
        assert f"{path.replace('{name}', 'NAME')}`" in PAGE, path
