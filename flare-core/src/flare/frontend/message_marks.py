"""Where complete messages end in a rendered conversation.

A chat template loops over the messages. A statement without output is added behind the body of such loops; it
runs when everything before it has been yielded, so the length of the text so far is where a message ends. The
text itself is the template's own. A template that collects its output before it yields it gives marks that
are of little use and do no harm: a mark only says where a checkpoint is worth having.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, Template, nodes

_MARK = "_flare_message_end"


def with_marks(environment: Environment, source: str) -> Template:
    """Compile `source` so that `render_marked` learns of message ends. Raises TemplateSyntaxError."""
    tree = environment.parse(source)
    for loop in tree.find_all(nodes.For):
        if any("messages" in name.name for name in _names(loop.iter)):
            call = nodes.Call(nodes.Name(_MARK, "load"), [], [], None, None)
            loop.body.append(nodes.ExprStmt(call).set_lineno(loop.lineno))
    tree.set_environment(environment)
    code = environment.compile(tree)
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def render_marked(template: Template, values: Mapping[str, Any]) -> tuple[str, list[int]]:
    """The rendered text, and the lengths of it at which messages end, ascending."""
    parts: list[str] = []
    marks: list[int] = []
    length = 0

    def mark() -> None:
        if not marks or marks[-1] != length:
            marks.append(length)

    note: Callable[[], None] = mark
    for part in template.generate(**values, **{_MARK: note}):
        parts.append(part)
        length += len(part)
    return "".join(parts), marks


def _names(expression: nodes.Node) -> list[nodes.Name]:
    own = [expression] if isinstance(expression, nodes.Name) else []
    return [*own, *expression.find_all(nodes.Name)]
