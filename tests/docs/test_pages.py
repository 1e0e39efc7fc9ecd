"""Pages are true in themselves: links lead somewhere, commands parse, tables and numbers are current."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import cli_tables
import pytest
import support_table
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md"))
)
FENCED = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def broken_links(page: str, text: str) -> list[str]:
    """Links that are neither addresses nor files, or name a heading that is not there."""
    prose, found = FENCED.sub("", text), []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if "://" in target:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            found.append(target)
    return found


def anchors(text: str) -> set[str]:
    """Headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {slugify(heading.replace("`", ""), "-") for heading in headings}


def commands(text: str) -> list[list[str]]:
    """Every `flare ...` of a page's shell blocks, as words."""
    blocks = [body for language, body in FENCED.findall(text) if language in ("", "sh", "bash", "console")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [
        shlex.split(line, comments=True) for line in lines if re.match(r"(\$ )?(\S*/)?flare ", line.strip())
    ]
    return [line[line[0] == "$" :][1:] for line in words]


def parse(words: list[str]) -> None:
    """Let the command line understand a command without running it. Raises its usage errors."""
    name, *arguments = words
    cli_tables.commands()[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert broken_links(page, text_of(page)) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](nowhere.md) [b](README.md) [c](docs/cli.md#flare-nothing) [d](https://example.org) [e](#none)"
    assert broken_links("README.md", text) == ["nowhere.md", "docs/cli.md#flare-nothing", "#none"]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(text_of(page))])
def test_commands_are_understood(page: str) -> None:
    for words in commands(text_of(page)):
        parse(words)


def test_a_wrong_command_is_not_understood() -> None:
    [wrong, right] = commands("```sh\nflare run --planted x  # never\nflare run \\\n  core\n```")
    with pytest.raises(Exception, match="planted"):
        parse(wrong)
    parse(right)


@pytest.mark.parametrize("page", PAGES)
def test_python_compiles(page: str) -> None:
    for language, body in FENCED.findall(text_of(page)):
        if language == "python" and not body.startswith(" "):
            compile(body, page, "exec")


def test_the_table_of_support_is_current() -> None:
    page = text_of("docs/agents.md")
    assert support_table.current(page) == page, "scripts/docs writes it"
    assert support_table.table() in page


def test_tables_of_options_are_current() -> None:
    page = text_of("docs/cli.md")
    assert cli_tables.current(page) == page, "scripts/docs writes them"
    assert set(re.findall(r"<!-- options: ([\w-]+) -->", page)) == set(cli_tables.commands())
    for option in cli_tables.options(cli_tables.group()):
        assert f"`flare {option.opts[0]}`" in page


def test_numbers_of_the_comparison_are_measured() -> None:
    """Every number of its table stands in the results, those of the table there in the same row."""
    results = text_of("benchmarks/RESULTS.md")
    table = text_of("docs/comparison.md").split("## Measured")[1].split("## Sources")[0]
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", table, re.MULTILINE)[2:]
    assert len(rows) == 5
    for title, cells in rows:
        measured = re.search(rf"^\| {re.escape(title)} .*$", results, re.MULTILINE)
        assert measured, title
        flare, alike, peer = cells.split(" | ")
        assert {flare, peer} <= set(measured[0].replace("|", " ").split()), title
        assert alike == "-" or re.search(rf"\b{re.escape(alike)}\b", results.split("## Method")[1]), title
