"""Known parameters that are not served: refused by name whenever they would change the answer."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from flare.frontend import UnsupportedError

logger = logging.getLogger("flare.server")

_OFF: tuple[Any, ...] = (None, False, "", [], {})

# Values that ask for nothing, besides the ones of `_OFF`.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # Tools and output formats.
    "functions": (),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    # Prompts and templates.
    "suffix": (),
    "chat_template": (),
    "chat_template_kwargs": (),
    "documents": (),
    "continue_final_message": (),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (),
    # Decoding.
    "best_of": (1,),
    "use_beam_search": (),
    "logits_processors": (),
    "allowed_token_ids": (),
    "bad_words": (),
    "include_stop_str_in_output": (),
    "return_token_ids": (),
}

_ON_BY_DEFAULT = ("add_generation_prompt", "skip_special_tokens")


def refuse_unserved(extra: Mapping[str, Any], n: int) -> list[str]:
    """Raises UnsupportedError naming the first field of `extra` that asks for a feature which is not served.
    Returns the names of the fields that are ignored."""
    ignored: list[str] = []
    for name, value in extra.items():
        if name in _ON_BY_DEFAULT:
            neutral: tuple[Any, ...] = (None, True)
        elif name in _NEUTRAL:
            neutral = (*_OFF, *_NEUTRAL[name])
        else:
            ignored.append(name)
            continue
        if name == "best_of" and value == n:
            continue
        if not _among(value, neutral):
            raise UnsupportedError(f"{name} is not supported by this server", field=name)
    return ignored


def _among(value: Any, neutral: tuple[Any, ...]) -> bool:
    # 0 == False and 1 == True: a number is only neutral as a number.
    return any(type(value) is type(item) and value == item for item in neutral)


class IgnoredFields:
    """Says that fields are ignored: a warning the first time a name is seen, so that agents which send one
    with every request do not flood the log."""

    _REMEMBERED = 64

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def report(self, request_id: str, names: Collection[str]) -> None:
        """Log the ignored `names` of a request."""
        if not names:
            return
        new = [name for name in names if name not in self._seen]
        level = logging.WARNING if new and len(self._seen) < self._REMEMBERED else logging.INFO
        logger.log(
            level,
            "request %s: ignored unknown fields: %s",
            request_id,
            ", ".join(f"{n[:64]!r}" for n in names),
        )
        self._seen.update(new[: self._REMEMBERED - len(self._seen)])
