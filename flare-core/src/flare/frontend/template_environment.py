"""What a chat template may use: Jinja in a sandbox, with the names that Transformers gives its templates.

https://huggingface.co/docs/transformers/chat_templating_writing
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def template_environment() -> ImmutableSandboxedEnvironment:
    """An environment for one template. Templates cannot change what they are given."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment


class _GenerationTag(Extension):
    """`{% generation %}` marks assistant text for training masks; here it is a plain scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> Node | list[Node]:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Dict:
    """`dict`, without the class: its methods would change a mapping that the sandbox protects."""

    def __call__(self, *args: Any, **items: Any) -> dict[Any, Any]:
        return dict(*args, **items)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace`, whose attributes have no leading underscore."""

    def __init__(*args: Any, **attributes: Any) -> None:  # `self` may be an attribute
        space, *rest = args
        made = dict(*rest, **attributes)
        for name in made:
            _check_attribute(name)
        Namespace.__init__(space, made)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        Namespace.__setitem__(self, name, value)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name!r}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which models were not trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
