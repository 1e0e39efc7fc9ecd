"""The table of docs/agents.md that says what is supported, from `flare.server.support`."""

from __future__ import annotations

import re
from pathlib import Path

from flare.server.support import FEATURES, Answer, Feature, Protocol

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
_TABLE = re.compile(r"(<!-- support -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES = {
    Protocol.CHAT: "chat",
    Protocol.COMPLETIONS: "completions",
    Protocol.RESPONSES: "Responses",
    Protocol.MESSAGES: "Messages",
}


def current(page: str) -> str:
    """The page with the table as the code has it."""
    return _TABLE.sub(lambda part: part[1] + table() + part[2], page)


def table() -> str:
    """Markdown."""
    rows = [
        "| feature | " + " | ".join(_NAMES.values()) + " | |",
        "| --- |" + " --- |" * len(_NAMES) + " --- |",
        *(_row(feature) for feature in FEATURES),
    ]
    return "\n" + "\n".join(rows) + "\n\n"


def _row(feature: Feature) -> str:
    cells = [_cell(feature.answers.get(protocol)) for protocol in _NAMES]
    return f"| {feature.name} | {' | '.join(cells)} | {feature.note} |"


def _cell(answer: Answer | None) -> str:
    if answer is None:
        return ""
    return answer.kind.value + (f" `{answer.code}`" if answer.code else "")


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))
