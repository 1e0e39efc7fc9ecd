"""Images that keep their proportions on a padded canvas: sizes and pixels are those of the processor,
however an image is encoded."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_samples import SIZES, address, address_of, compare, encoded, picture
from PIL import Image, ImageOps
from transformers.models.glm5_next.image_processing_pil_glm5_next import (
    Glm5NextImageProcessorPil,
    smart_resize,
)

from flare.contract import ImageFit, ImageProfile
from flare.frontend.images import ImageCache
from flare.frontend.images.fit import fitted
from flare.frontend.images.patches import prepared

LEAST, MOST = 16, 400  # features of an image
PROFILE = ImageProfile(
    fit=ImageFit.PAD,
    patch=14,
    merge=2,
    temporal=2,
    min_pixels=LEAST * 28**2,
    max_pixels=MOST * 28**2,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    placeholder=7,
    max_aspect_ratio=None,
    background=(255, 255, 255),
)
EXTREMES = [
    (1, 1000),
    (1000, 1),
    (3, 4000),
    (40000, 2),
    (500000, 1),
    (1, 13),
    (28, 28),
    (27, 29),
    (5000, 4000),
]


@pytest.fixture(scope="module")
def processor():
    return Glm5NextImageProcessorPil(min_image_tokens=LEAST, max_image_tokens=MOST)


@pytest.mark.parametrize("size", [*SIZES, *EXTREMES])
def test_patches_are_those_of_the_processor(processor, size):
    compare(processor, PROFILE, picture(*size))


@settings(max_examples=400, deadline=None)
@given(
    height=st.integers(1, 6000),
    width=st.integers(1, 6000),
    bounds=st.tuples(st.integers(1, 60), st.integers(0, 8000)),
)
def test_canvases_are_those_of_the_processor(height, width, bounds):
    least, most = bounds[0], bounds[0] + bounds[1]
    profile = PROFILE.model_copy(update={"min_pixels": least * 28**2, "max_pixels": most * 28**2})
    place = fitted(height, width, profile)
    assert place.canvas == smart_resize(2, height, width, min_pixels=least, max_pixels=most)
    assert place.canvas[0] * place.canvas[1] <= profile.max_pixels
    for content, canvas in zip(place.content, place.canvas, strict=True):
        assert 0 < content <= canvas


@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 500), width=st.integers(1, 500), most=st.integers(16, 60))
def test_any_image_is_that_of_the_processor(height, width, most):
    processor = Glm5NextImageProcessorPil(min_image_tokens=LEAST, max_image_tokens=most)
    profile = PROFILE.model_copy(update={"max_pixels": most * 28**2})
    compare(processor, profile, picture(width, height))


def oriented(turn: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = turn
    return encoded(picture(90, 61), "jpeg", exif=exif)


def palette() -> bytes:
    """Of few colours, one of which is transparent."""
    return encoded(picture(64, 48).quantize(16), "png", transparency=3)


ENCODED = {
    "grey": encoded(picture(64, 48, "L")),
    "grey with alpha": encoded(picture(64, 48, "LA")),
    "black and white": encoded(picture(64, 48, "1")),
    "grey of 16 bits": encoded(Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) * 16)),
    "alpha": encoded(picture(64, 48, "RGBA")),
    "alpha, webp": encoded(picture(64, 48, "RGBA"), "webp", lossless=True),
    "palette": encoded(picture(64, 48).quantize(16)),
    "palette with a transparent colour": palette(),
    "one transparent colour": encoded(Image.new("RGB", (64, 48), (9, 8, 7)), "png", transparency=(9, 8, 7)),
    "gif": encoded(picture(64, 48).quantize(16), "gif", transparency=2),
    "ink": encoded(picture(64, 48, "CMYK"), "jpeg"),
    **{f"turned {turn}": oriented(turn) for turn in range(1, 9)},
}


@pytest.mark.parametrize("name", ENCODED)
def test_every_kind_of_image_is_that_of_the_processor(processor, name):
    image = Image.open(io.BytesIO(ENCODED[name]))
    want = processor(images=[ImageOps.exif_transpose(image)], return_tensors="np")
    kind = image.format.lower()
    found = ImageCache(PROFILE).get(address_of(ENCODED[name], kind), "image")
    assert found.grid == tuple(want["image_grid_thw"][0].tolist())
    patches = np.frombuffer(found.patches, np.float32).reshape(-1, PROFILE.patch_elements)
    np.testing.assert_allclose(patches, want["pixel_values"], rtol=0, atol=3e-7)


def test_without_a_background_transparency_is_dropped():
    clear = picture(64, 48, "RGBA")
    dropped = PROFILE.model_copy(update={"background": None})
    found = ImageCache(dropped).get(address(clear), "image")
    assert found.patches == prepared(clear.convert("RGB"), PROFILE, "image").patches
    assert found.patches != ImageCache(PROFILE).get(address(clear), "image").patches


def test_padding_is_black_before_it_is_normalised():
    image = prepared(Image.new("RGB", (10, 100), (255, 255, 255)), PROFILE, "image")
    last = np.frombuffer(image.patches, np.float32).reshape(-1, 3, 2, 14, 14)[-1]
    black = [-mean / std for mean, std in zip(PROFILE.mean, PROFILE.std, strict=True)]
    for channel, value in zip(last, black, strict=True):
        np.testing.assert_allclose(channel, value, rtol=1e-6)


def test_profiles_of_before_mean_what_they_meant():
    fields = PROFILE.model_dump(exclude={"max_aspect_ratio", "background"})
    profile = ImageProfile.model_validate(fields)
    assert (profile.max_aspect_ratio, profile.background) == (200, None)
