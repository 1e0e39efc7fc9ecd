"""What mkdocs does besides Markdown: pages from outside docs/, the contract's reference, and two checks.

Pages are written to be read in the repository as well: links are paths of files. Here those to files that
are pages of the site become links to the pages, those to other files of the repository plain text, and
those to nothing warnings, which fail a strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from contract_reference import MARK, reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.flare")
ROOT = Path(__file__).parents[2]

# Files outside docs/ that are pages of the site.
INCLUDED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/RESULTS.md": "results.md",
}
WIDE = {"comparison.md"}  # its table needs the room of the table of contents
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|"
    r"<link\b(?=[^>]*rel=\"?(?:stylesheet|preconnect|icon))[^>]*href=\"?(?:https?:)?//"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for source, page in INCLUDED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the generated reference where its mark is, and turn paths into links of the site."""
    source = repository_path(page.file.src_uri)
    parts = _FENCED.split(markdown)
    titles = {file.src_uri: file.page.title for file in files.documentation_pages() if file.page}
    parts[::2] = [_LINK.sub(lambda link: site_link(link, source, titles), prose) for prose in parts[::2]]
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    return "".join(parts).replace(MARK, reference() if MARK in markdown else MARK)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page that makes the reader's browser fetch something from elsewhere is a warning."""
    for found in _FETCHED.findall(output):
        log.warning("%s fetches from another host: %s", page.file.src_uri, found)
    return output


def repository_path(page: str) -> str:
    """Path of a page's source, from the root of the repository."""
    outside = {page: source for source, page in INCLUDED.items()}
    return outside.get(page, f"docs/{page}")


def site_link(link: re.Match[str], source: str, titles: dict[str, str]) -> str:
    """A Markdown link of the file `source` as the site has it; a path as text becomes the page's title."""
    text, target = link[1], link[2]
    path, hash_sign, anchor = target.partition("#")
    if "://" in path or not path:
        return link[0]
    file = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if not (ROOT / file).exists():
        log.warning("%s: there is no %s", source, target)
        return text
    page = INCLUDED.get(file, file.removeprefix("docs/") if file.startswith("docs/") else None)
    if page is None:
        return text
    title = titles.get(page, text) if text == path else text
    return f"[{title}]({page}{hash_sign}{anchor})"
