"""Images in prompts: numbers and order of the processors that models were trained with, and hostile input."""

from dataclasses import replace

import numpy as np
import pytest
from picture_samples import SIZES, address, compare, picture
from PIL import Image

from flare.contract import ImageFit, ImageProfile
from flare.errors import RequestError
from flare.frontend import Prompts, UnsupportedError
from flare.frontend.images import ImageCache, ImageLimits, expand
from flare.frontend.images.patches import prepared
from flare.testing.tiny_text import tiny_assets

STRETCH = ImageProfile(
    fit=ImageFit.STRETCH,
    patch=16,
    merge=2,
    temporal=2,
    min_pixels=65536,
    max_pixels=262144,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    placeholder=7,
)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_stretched_images_are_those_of_the_processor(width, height):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(
        patch_size=16,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": STRETCH.min_pixels, "longest_edge": STRETCH.max_pixels},
        image_mean=list(STRETCH.mean),
        image_std=list(STRETCH.std),
    )
    compare(processor, STRETCH, picture(width, height))


def test_positions_are_those_of_the_model():
    import torch
    from transformers import Qwen4ExpConfig
    from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpModel

    images = [prepared(picture(*size), STRETCH, "image") for size in ((300, 417), (640, 200))]
    tokens = [1, 2, 7, 3, 4, 4, 7, 5]
    expanded = expand(tokens, (2, 4, 8), images, STRETCH)
    ids = torch.tensor([expanded.tokens])

    class Stub:
        config = Qwen4ExpConfig()

    Stub.get_vision_position_ids = Qwen4ExpModel.get_vision_position_ids
    want, delta = Qwen4ExpModel.get_rope_index(
        Stub(),
        ids,
        mm_token_type_ids=(ids == 7).int(),
        image_grid_thw=torch.tensor([image.grid for image in images]),
    )
    found = np.frombuffer(expanded.rope_positions, np.int32).reshape(3, -1)
    assert found.tolist() == want[:, 0].tolist()
    assert int(found.max()) + 1 - len(expanded.tokens) == int(delta)


def test_endpoints_and_features_move_along():
    images = [prepared(picture(*size), STRETCH, "image") for size in ((256, 256), (512, 256))]
    first, second = (image.features for image in images)
    expanded = expand([1, 7, 3, 7, 7 - 2], (1, 2, 3, 4, 5), images, STRETCH)
    assert expanded.tokens == (1, *(7,) * first, 3, *(7,) * second, 5)
    assert expanded.endpoints == (1, 1 + first, 2 + first, 2 + first + second, 3 + first + second)
    assert [placed.start for placed in expanded.images] == [1, 2 + first]


def test_text_must_not_contain_placeholders():
    image = prepared(picture(64, 64), STRETCH, "image")
    with pytest.raises(RequestError, match="2 image placeholders for 1 images"):
        expand([7, 1, 7], (), [image], STRETCH)
    with pytest.raises(RequestError, match="0 image placeholders for 1 images"):
        expand([1], (), [image], STRETCH)


def test_identity_is_of_pixels_and_profile():
    base = picture(64, 48)
    changed = base.copy()
    changed.putpixel((3, 3), (1, 2, 3))
    other = STRETCH.model_copy(update={"max_pixels": 300000})
    seen = [prepared(base, STRETCH, "i"), prepared(changed, STRETCH, "i"), prepared(base, other, "i")]
    seen.append(prepared(base.transpose(Image.Transpose.TRANSPOSE), STRETCH, "i"))
    assert len({image.identity for image in seen}) == 4
    lossless = ImageCache(STRETCH)
    same = {lossless.get(address(base, kind), "i").identity for kind in ("png",)}
    same.add(lossless.get(address(base, "webp", lossless=True), "i").identity)
    assert same == {seen[0].identity}


def test_orientation_and_transparency():
    base = picture(64, 48)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = ImageCache(STRETCH).get(address(base, "png", exif=exif), "i")
    assert turned.identity == prepared(base.transpose(Image.Transpose.ROTATE_270), STRETCH, "i").identity
    clear = picture(64, 48, "RGBA")
    assert (
        ImageCache(STRETCH).get(address(clear), "i").identity
        == prepared(clear.convert("RGB"), STRETCH, "i").identity
    )


BOMB = ImageLimits(most_pixels=1000, most_bytes=5000)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("https://example.com/cat.png", "is not fetched"),
        ("file:///etc/passwd", "is not fetched"),
        ("/etc/passwd", "is not fetched"),
        ("data:text/html;base64,AAAA", "must be of the form"),
        ("data:image/png,AAAA", "must be of the form"),
        ("data:image/png;base64", "must be of the form"),
        ("data:image/png;base64,@@@@", "is not base64"),
        ("data:image/png;base64,", "is no image"),
        ("data:image/png;base64,AAAA", "is no image of PNG, JPEG"),
        (address(picture(8, 8))[:-40] + "AAAA", "cannot be decoded"),
        (address(Image.new("L", (100, 100))), "100 x 100 pixels, more than 1000"),
        (address(picture(30, 30)) + "A" * 9000, "more than 5000 bytes"),
        (address(Image.new("L", (201, 1))), "over 200 times"),
        (address(picture(8, 8), "bmp"), "is no image of PNG"),
    ],
)
def test_what_is_no_image_is_a_typed_error(bad, message):
    with pytest.raises(RequestError, match=message) as caught:
        ImageCache(STRETCH, BOMB).get(bad, "messages[0].content[1].image_url.url")
    assert caught.value.field == "messages[0].content[1].image_url.url"


def test_the_cache_is_bounded_and_keeps_what_was_used_last():
    images = [address(picture(256, 256, seed=seed)) for seed in range(4)]
    nbytes = len(prepared(picture(256, 256), STRETCH, "i").patches)
    cache = ImageCache(STRETCH, most_bytes=2 * nbytes)
    first = cache.get(images[0], "i")
    cache.get(images[1], "i")
    assert cache.get(images[0], "i") is first
    cache.get(images[2], "i")
    assert cache.get(images[0], "i") is first
    assert len(cache._images) == 2
    assert cache._nbytes == 2 * nbytes


TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}<|im_start|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)


def prompts(images: bool = True) -> Prompts:
    assets = tiny_assets(template=TEMPLATE)
    profile = STRETCH.model_copy(update={"placeholder": 1}) if images else None
    return Prompts(replace(assets, frontend=assets.frontend.model_copy(update={"images": profile})))


def message(*parts) -> list[dict]:
    return [{"role": "user", "content": list(parts)}]


def test_a_message_with_an_image_becomes_a_prompt():
    url = address(picture(256, 256))
    parts = ({"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": url}})
    prompt = prompts().from_messages([*message(*parts), {"role": "user", "content": "you"}])
    assert prompt.tokens.count(1) == 64
    (placed,) = prompt.images
    assert prompt.tokens[placed.start : placed.start + 64] == (1,) * 64
    assert len(prompt.rope_positions) == 12 * len(prompt.tokens)
    assert prompt.endpoints == (placed.start + 64,)
    text = prompts().from_messages(message({"type": "text", "text": "hi"}))
    assert (text.images, text.rope_positions) == ((), b"")


def test_expanded_prompts_are_bounded_by_the_context():
    part = {"type": "image_url", "image_url": {"url": address(picture(256, 256))}}
    with pytest.raises(RequestError, match="too long: 65 tokens"):
        prompts().from_messages(message(part, {"type": "text", "text": "a"}), context=64)


def test_models_without_a_profile_take_no_images():
    part = {"type": "image_url", "image_url": {"url": address(picture(8, 8))}}
    with pytest.raises(UnsupportedError, match="'image_url' are not served"):
        prompts(images=False).from_messages(message(part))
    with pytest.raises(RequestError, match=r"content\[0\].image_url.url must be a string"):
        prompts().from_messages(message({"type": "image_url", "image_url": {}}))
