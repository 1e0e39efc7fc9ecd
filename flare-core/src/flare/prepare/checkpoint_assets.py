"""The text files of a checkpoint in the hub's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flare.errors import CheckpointError
from flare.prepare.checkpoint import Assets


def read_json(file: Path) -> dict[str, Any] | None:
    """The object in `file`, None when there is no such file. Raises CheckpointError when it is not one."""
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON: {error}", field=file.name) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds no JSON object", field=file.name)
    return content


def read_assets(directory: Path) -> Assets:
    """Tokenizer, chat template, special tokens, and what is configured of generation and images."""
    tokenizer = directory / "tokenizer.json"
    settings = read_json(directory / "tokenizer_config.json") or {}
    named = {**(read_json(directory / "special_tokens_map.json") or {}), **settings}
    return Assets(
        tokenizer=tokenizer.read_bytes() if tokenizer.is_file() else None,
        chat_template=_chat_template(directory, settings),
        generation_config=read_json(directory / "generation_config.json"),
        special_tokens=_special_tokens(named),
        image_processor=_image_processor(directory),
    )


def _image_processor(directory: Path) -> Mapping[str, Any] | None:
    """A file of its own, or a part of that of all processors."""
    single = read_json(directory / "preprocessor_config.json")
    return single or (read_json(directory / "processor_config.json") or {}).get("image_processor")


def _chat_template(directory: Path, settings: Mapping[str, Any]) -> str | None:
    """The file beside the tokenizer wins over the field in its configuration, as in Transformers."""
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like; each is a string, or an added token whose `content` is one."""
    tokens: dict[str, str] = {}
    for name, value in settings.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            tokens[name] = content
    return tokens
