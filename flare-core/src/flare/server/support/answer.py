"""What a server says to a feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Protocol(StrEnum):
    """The endpoints that generate."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


class Kind(StrEnum):
    """Nothing else happens to a feature, and none of it silently."""

    SERVED = "served"
    REFUSED = "refused"
    BYPASSED = "bypassed"


@dataclass(frozen=True, slots=True)
class Answer:
    """`body`: fields that ask for the feature, added to the smallest body of the endpoint. A refusal has
    status 400 and `code`; what is bypassed has no effect and is named, as `logged`, in the log."""

    kind: Kind
    body: Mapping[str, Any]
    code: str = ""
    logged: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """`name` for readers, and the answer of every protocol that knows of it."""

    name: str
    answers: Mapping[Protocol, Answer] = field(default_factory=dict)
    note: str = ""


def SERVED(**body: Any) -> Answer:
    """It has an effect."""
    return Answer(Kind.SERVED, body)


def REFUSED(code: str = "unsupported", **body: Any) -> Answer:
    """It is an error."""
    return Answer(Kind.REFUSED, body, code=code)


def BYPASSED(logged: str, **body: Any) -> Answer:
    """It has no effect, and a line in the log."""
    return Answer(Kind.BYPASSED, body, logged=logged)
