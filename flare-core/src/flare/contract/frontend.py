"""What the front process needs to turn messages into token ids and token ids into text."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from flare.contract.base import ContractModel
from flare.contract.images import ImageProfile
from flare.contract.output_format import OutputFormat
from flare.contract.sampling import DefaultSampling


class TemplateKind(StrEnum):
    """How prompts are rendered. Each value names an interpreter in `flare.frontend`, never a model."""

    JINJA = "jinja"
    NONE = "none"  # completions only: chat requests are refused


class Frontend(ContractModel):
    """Assets are tensors of the core file (uint8), named here.

    `tokenizer_asset` holds a `tokenizer.json`; `template_asset` the chat template source.
    `special_tokens` are strings a template may reference (`bos_token`, `eos_token`, ...).
    `eos_token_ids` end generation unless a request ignores them. `images`: None for a model that takes none.
    `output`: how reasoning and tool calls are written.
    """

    vocab_size: int = Field(gt=0)
    tokenizer_asset: str
    template_kind: TemplateKind
    template_asset: str | None = None
    special_tokens: dict[str, str] = {}
    eos_token_ids: tuple[int, ...]
    add_bos: bool = False
    images: ImageProfile | None = None
    output: OutputFormat = OutputFormat()
    default_sampling: DefaultSampling
