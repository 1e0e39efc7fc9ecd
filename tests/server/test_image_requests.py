"""Chat requests with images: what reaches the engine."""

from __future__ import annotations

from dataclasses import replace

import httpx
import openai
import pytest
from drawn_pictures import PROFILE, data_url, png
from live import MODEL, LiveServer
from picture_server import PictureServer, content, redirect

from flare.frontend import FrontendAssets
from flare.server import ServerSettings
from flare.testing.tiny_text import START, tiny_assets

TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text if part.type == 'text' else '" + START + "' }}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def picture(width: int, height: int, seed: int = 0) -> dict:
    return {"type": "image_url", "image_url": {"url": data_url(width, height, seed)}}


def with_images() -> FrontendAssets:
    assets = tiny_assets(template=TEMPLATE)
    return replace(assets, frontend=assets.frontend.model_copy(update={"images": PROFILE}))


def test_images_travel_with_the_request() -> None:
    assets = with_images()
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
            with pytest.raises(openai.BadRequestError, match=message) as caught:
                ask(picture(16, 8), bad)
            assert caught.value.code == ("image_not_fetched" if "fetched" in message else "invalid_request")


def test_an_image_at_an_address_is_the_image() -> None:
    body, other = png(32, 32), png(32, 32, seed=1)
    answers = {
        "/a.png": content(body),
        "/there": redirect("/a.png"),
        "/text": content(b"<html>", kind="text/html"),
        "/junk.png": content(b"no image"),
    }
    with PictureServer(answers) as pictures:
        settings = ServerSettings(allowed_media_domains=(f"127.0.0.1:{pictures.port}",))
        with (
            LiveServer(settings, assets=with_images()) as server,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        ):

            def ask(*urls: str) -> None:
                parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
                client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])

            data = data_url(32, 32)
            ask(data, data, data)
            ask(pictures.url("/a.png"), data, pictures.url("/there"))
            answers["/a.png"] = content(other)
            ask(pictures.url("/a.png"), data, data)
            first, second, third = server.engine.counters.submissions
            assert (first.prompt, first.images) == (second.prompt, second.images)
            assert first.images[1:] == third.images[1:]
            assert first.images[0].identity != third.images[0].identity, "the file is another one now"
            for path, code, why in (
                ("/text", "image_not_fetched", "is no image: its content-type is 'text/html'"),
                ("/junk.png", "invalid_request", "is no image of PNG"),
            ):
                with pytest.raises(openai.BadRequestError, match=why) as caught:
                    ask(data, pictures.url(path))
                assert caught.value.code == code
                assert caught.value.param == "messages[0].content[1].image_url.url"
            with pytest.raises(openai.BadRequestError, match="does not allow 'localhost:"):
                ask(pictures.url("/a.png", "localhost"))


def test_every_protocol_takes_images_at_addresses() -> None:
    with PictureServer({"/a.png": content(png(32, 32))}) as pictures:
        settings = ServerSettings(allowed_media_domains=(f"127.0.0.1:{pictures.port}",))
        url = pictures.url("/a.png")
        anthropic = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}]
        bodies = {
            "/v1/messages": {"max_tokens": 2, "messages": anthropic},
            "/v1/responses": {
                "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
            },
        }
        with LiveServer(settings, assets=with_images()) as server, httpx.Client() as client:
            for path, sent in bodies.items():
                answer = client.post(f"{server.url}{path}", json={"model": MODEL, **sent})
                assert answer.status_code == 200, answer.text
            counted = client.post(
                f"{server.url}/v1/messages/count_tokens", json={"model": MODEL, "messages": anthropic}
            )
            first, second = server.engine.counters.submissions
        assert first.images == second.images
        assert len(first.images) == 1
        assert counted.json() == {"input_tokens": len(first.prompt)}
        assert len(pictures.asked) == 3
