"""The frontend of a core: its contract entry with the bytes the entry names."""

from __future__ import annotations

from dataclasses import dataclass

from flare.contract import Frontend


@dataclass(frozen=True, slots=True)
class FrontendAssets:
    """`tokenizer` is the content of a `tokenizer.json`, `template` the source of the chat template (None for
    a core that serves completions only)."""

    frontend: Frontend
    tokenizer: bytes
    template: str | None
