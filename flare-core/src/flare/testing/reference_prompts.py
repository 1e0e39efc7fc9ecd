"""Prompts as Transformers makes them of a checkpoint's own tokenizer, template and image processor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.frontend import Prompts
from flare.frontend.message_form import MessageForm
from flare.testing.conversation import Conversation

if TYPE_CHECKING:
    from flare.prepare import Checkpoint


class ReferencePrompts:
    """Of the checkpoint at `path`: a directory, or, without images, what `checkpoint` was read from."""

    def __init__(self, path: Path, checkpoint: Checkpoint) -> None:
        self._path = path
        self.tokenizer = _tokenizer(path, checkpoint)

    def prompt(
        self, conversation: Conversation, variables: Mapping[str, Any], prompts: Prompts
    ) -> tuple[str, list[int]]:
        """Text and token ids, images expanded, of a conversation in the form that its template reads, as
        `prompts` have found it. Raises whatever the template raises."""
        messages = [documented(message, prompts.message_form) for message in conversation.messages]
        messages = prompts.system_places.fitted(messages)
        values = {"tools": conversation.tools or None, "add_generation_prompt": True, **variables}
        maker = self.processor if conversation.has_images else self.tokenizer
        text: str = maker.apply_chat_template(messages, tokenize=False, **values)
        made = maker.apply_chat_template(messages, tokenize=True, return_dict=True, **values)["input_ids"]
        ids = made[0] if conversation.has_images else made
        return text, [int(token) for token in ids]

    @cached_property
    def processor(self) -> Any:
        """The model's combined processor. Its parts for other things than texts and images may need libraries
        that are not there, and are left out."""
        from transformers import AutoConfig, AutoImageProcessor
        from transformers.models.auto.processing_auto import processor_class_from_name

        config = AutoConfig.from_pretrained(self._path, local_files_only=True)
        base: Any = processor_class_from_name(_processor_name(config.model_type))

        class WithoutOthers(base):  # type: ignore[misc]
            """Takes None for a part."""

            def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
                if argument is None:
                    return type(None)
                return super().check_argument_for_proper_class(argument_name, argument)

        images = AutoImageProcessor.from_pretrained(self._path, local_files_only=True, backend="pil")
        parts = {
            **dict.fromkeys(base.get_attributes()),
            "tokenizer": self.tokenizer,
            "image_processor": images,
        }
        return WithoutOthers(**parts, chat_template=self.tokenizer.chat_template)


def _processor_name(model_type: str) -> str:
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    return str(PROCESSOR_MAPPING_NAMES[model_type])


def _tokenizer(path: Path, checkpoint: Checkpoint) -> Any:
    if path.is_dir():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    assets = checkpoint.assets
    tokenizer = Tokenizer.from_buffer(assets.tokenizer or b"")
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **assets.special_tokens)
    made.chat_template = assets.chat_template
    return made


def documented(message: Mapping[str, Any], form: MessageForm) -> dict[str, Any]:
    """A message in the shape that Transformers asks for: arguments are objects, and what the template does
    not read has another name or is joined."""
    made = dict(message)
    if made["role"] == "developer" and not form.developer:
        made["role"] = "system"
    content = made.get("content")
    if (
        isinstance(content, list)
        and made["role"] not in form.part_roles
        and all(part["type"] == "text" for part in content)
    ):
        made["content"] = "\n".join(part["text"] for part in content)
    if made.get("tool_calls"):
        made["tool_calls"] = [_as_object(call) for call in made["tool_calls"]]
    return made


def _as_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.loads(function["arguments"] or "{}")
    return {**call, "function": {**function, "arguments": arguments}}
