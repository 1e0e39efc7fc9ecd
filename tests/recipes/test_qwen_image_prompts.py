"""Prompts with images: text, token ids, patches and positions are those of Transformers.

Its combined processor needs Torchvision for videos; what it does with images is done here by its parts.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from qwen_pictures import message, prompts
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from flare.contract import DType
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny_text import TOKENS

SIZES = [(64, 64), (130, 90), (90, 130), (31, 300), (400, 410), (1, 1)]
PICTURES = [picture(*size, seed) for seed, size in enumerate(SIZES)]
CONVERSATIONS = [
    *([message("what is ", one, "?")] for one in PICTURES),
    [message(PICTURES[0])],
    [message(PICTURES[1], PICTURES[2])],
    [message("a", PICTURES[3], "b", PICTURES[0], "c", PICTURES[4], "d")],
    [{"role": "system", "content": "Look."}, message("日本語 🙂", PICTURES[1], "<b>&")],
    [message("one ", PICTURES[0]), message("yes", role="assistant"), message("two ", PICTURES[5], "?")],
    [
        message(PICTURES[2], "first"),
        {"role": "assistant", "reasoning_content": "hm", "content": "so"},
        {"role": "user", "content": "no image here"},
        {"role": "assistant", "content": "no"},
        message("last ", PICTURES[3]),
    ],
]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_prompt_is_that_of_transformers(
    flare_tiny_checkpoint: TinyCheckpoints, conversation: list[dict[str, Any]]
) -> None:
    checkpoint = flare_tiny_checkpoint(RECIPE)
    prompt = prompts(checkpoint).from_messages(conversation)
    text = rendered(checkpoint, conversation)
    assert prompt.text == text
    want = Qwen2VLImageProcessorPil.from_pretrained(checkpoint)(
        images=opened(conversation), return_tensors="pt"
    )
    grids = want["image_grid_thw"]
    for grid in grids.tolist():
        # Marked by another token, so that a replaced one is not found again.
        text = text.replace("<|image_pad|>", "<|video_pad|>" * (grid[1] * grid[2] // 4), 1)
    ids = torch.tensor([tokenizer(checkpoint)(text, add_special_tokens=False)["input_ids"]])
    kinds = (ids == TOKENS["<|video_pad|>"]).int()
    ids = ids.where(kinds == 0, TOKENS["<|image_pad|>"])
    assert list(prompt.tokens) == ids[0].tolist()
    patches = b"".join(one.image.patches for one in prompt.images)
    found = np.frombuffer(patches, np.float32).reshape(want["pixel_values"].shape)
    np.testing.assert_allclose(found, want["pixel_values"], rtol=0, atol=3e-7)
    model = RECIPE.oracle.reference(RECIPE.loader.open(checkpoint), DType.F32)
    positions, _ = model.model.get_rope_index(ids, kinds, grids)
    assert np.frombuffer(prompt.rope_positions, np.int32).reshape(3, -1).tolist() == positions[:, 0].tolist()


def tokenizer(checkpoint: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(checkpoint, local_files_only=True)


def rendered(checkpoint: Path, conversation: list[dict[str, Any]]) -> str:
    """With images as Transformers' conversations name them."""
    messages = []
    for one in conversation:
        content = one["content"]
        if not isinstance(content, str) and any(part["type"] == "image_url" for part in content):
            content = [{"type": "image"} if part["type"] == "image_url" else part for part in content]
        messages.append({**one, "content": content})
    text: str = tokenizer(checkpoint).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    return text


def opened(conversation: list[dict[str, Any]]) -> list[Image.Image]:
    addresses = [
        part["image_url"]["url"]
        for one in conversation
        if not isinstance(one["content"], str)
        for part in one["content"]
        if part["type"] == "image_url"
    ]
    return [Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) for address in addresses]
