"""Chat requests with images: what reaches the engine."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import openai
import pytest
from live import LiveServer
from PIL import Image

from flare.contract import ImageFit, ImageProfile
from flare.server import ServerSettings
from flare.testing.tiny_text import START, tiny_assets

PROFILE = ImageProfile(
    fit=ImageFit.STRETCH,
    patch=4,
    merge=2,
    temporal=1,
    min_pixels=64,
    max_pixels=1024,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    placeholder=1,
)
TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text if part.type == 'text' else '" + START + "' }}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def picture(width: int, height: int, seed: int = 0) -> dict:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "png")
    url = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def test_images_travel_with_the_request() -> None:
    assets = tiny_assets(template=TEMPLATE)
    assets = replace(assets, frontend=assets.frontend.model_copy(update={"images": PROFILE}))
    settings = ServerSettings(max_image_pixels=5000)
    with (
        LiveServer(settings, assets=assets) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):

        def ask(*parts: dict) -> None:
            client.chat.completions.create(
                model="tiny/chat", messages=[{"role": "user", "content": [*parts]}]
            )

        text = {"type": "text", "text": "what is this?"}
        ask(text, picture(16, 8), picture(32, 32, seed=1))
        ask(text, picture(16, 8), picture(32, 32, seed=2))
        first, second = server.engine.counters.submissions
        assert [(image.tokens, image.grid) for image in first.images] == [(2, (1, 2, 4)), (16, (1, 8, 8))]
        assert [len(image.patches) for image in first.images] == [8 * 48 * 4, 64 * 48 * 4]
        assert first.prompt == second.prompt
        assert first.prompt.count(1) == 18
        assert first.images[0] == second.images[0]
        assert first.images[1].identity != second.images[1].identity
        assert len(first.rope_positions) == 12 * len(first.prompt)
        for bad, message in (
            (picture(100, 100), "100 x 100 pixels, more than 5000"),
            ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "is not fetched"),
            ({"type": "text", "text": START}, "2 image placeholders for 1 images"),
        ):
            with pytest.raises(openai.BadRequestError, match=message):
                ask(picture(16, 8), bad)
