"""Whether a client wants to read HTML."""

from __future__ import annotations


def wants_html(accept: str) -> bool:
    """By the header `accept` (https://www.rfc-editor.org/rfc/rfc9110#name-accept): browsers name `text/html`,
    programs do not. Wildcards ask for nothing in particular; of HTML and JSON the one with the greater weight
    counts, and HTML where they are equal."""
    weights = dict(_weighted(item) for item in accept.split(","))
    html = weights.get("text/html", 0.0)
    return html > 0 and html >= weights.get("application/json", 0.0)


def _weighted(item: str) -> tuple[str, float]:
    """A media range without parameters, and its weight; one that cannot be read is 0."""
    media, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((p.partition("=")[2] for p in parameters if p.startswith("q=")), "1")
    try:
        return media, float(weight)
    except ValueError:
        return media, 0.0
