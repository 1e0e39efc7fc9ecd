"""The command-line agents that are run against a server, and how they are told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Environment = dict[str, str]


@dataclass(frozen=True)
class AgentClient:
    """`package` is an npm package of `version` with the program `command[0]`. `prepare` writes the settings
    that lead to a server and returns what else the environment needs; it is given the server's address, a
    home directory and a working directory, both empty."""

    name: str
    package: str
    version: str
    command: tuple[str, ...]
    prepare: Callable[[str, Path, Path], Environment]


def _claude(url: str, home: Path, work: Path) -> Environment:
    models = dict.fromkeys(("OPUS", "SONNET", "HAIKU"), MODEL)
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": MODEL,
        **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": model for kind, model in models.items()},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(url: str, home: Path, work: Path) -> Environment:
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(
        f'model = "{MODEL}"\nmodel_provider = "flare"\n[model_providers.flare]\nname = "flare"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n'
    )
    return {}


def _opencode(url: str, home: Path, work: Path) -> Environment:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {MODEL: {}},
    }
    model = f"flare/{MODEL}"
    settings = {"provider": {"flare": provider}, "model": model, "small_model": model}
    (work / "opencode.json").write_text(json.dumps(settings))
    return {}


MODEL = "tiny/chat"
TASK = "Run the two commands."
CLIENTS = (
    AgentClient(
        "claude-code",
        "@anthropic-ai/claude-code",
        "2.1.197",
        ("claude", "-p", TASK, "--allowedTools", "Bash"),
        _claude,
    ),
    AgentClient(
        "codex",
        "@openai/codex",
        "0.171.0",
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK),
        _codex,
    ),
    AgentClient("opencode", "opencode-ai", "1.18.33", ("opencode", "run", TASK), _opencode),
)
