"""Sizes of vision programs: what the profile can need, what was asked for, and what cannot be."""

import pytest

from flare.contract import ImageFit, ImageProfile
from flare.errors import CapacityError
from flare.prepare import CapacityRequest
from flare.prepare.image_sizes import bounded, image_sizes


def profile(most, least=65536, patch=16):
    return ImageProfile(
        fit=ImageFit.STRETCH,
        patch=patch,
        merge=2,
        temporal=2,
        min_pixels=least,
        max_pixels=most,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        placeholder=7,
    )


@pytest.mark.parametrize(
    ("images", "asked", "sizes", "features"),
    [
        (profile(1 << 24), {}, (256, 1024, 4096, 16384), 16384),
        (profile(1 << 24), {"image_patches": 65536}, (256, 1024, 4096, 16384, 65536), 65536),
        (profile(1 << 24), {"image_patches": 1001}, (256, 1000), 1000),
        (profile(1 << 24), {"image_features": 5000}, (256, 1024, 4096, 16384), 5000),
        (profile(700 * 256), {}, (256, 700), 700),
        (profile(65536, least=4096), {}, (256,), 256),
        (profile(100 * 256, least=4096), {}, (100,), 100),
        (None, {}, (), 0),
    ],
)
def test_sizes_are_what_images_need(images, asked, sizes, features):
    assert image_sizes(CapacityRequest(**asked), images, context=1 << 18) == (sizes, features)


def test_features_are_no_more_than_the_context():
    assert image_sizes(CapacityRequest(), profile(1 << 24), context=1000)[1] == 1000


@pytest.mark.parametrize(
    ("images", "asked", "message"),
    [
        (profile(1 << 24), {"image_patches": 255}, "at least 256: the smallest image"),
        (profile(1 << 24, least=1), {"image_patches": 3}, "at least 4: the smallest image"),
        (None, {"image_patches": 1024}, "takes no images"),
        (None, {"image_features": 1024}, "takes no images"),
    ],
)
def test_what_cannot_be_says_so(images, asked, message):
    with pytest.raises(CapacityError, match=message):
        image_sizes(CapacityRequest(**asked), images, context=1000)


def test_numbers_are_positive():
    with pytest.raises(CapacityError, match="image-patches must be at least 1"):
        CapacityRequest(image_patches=0)


def test_larger_images_are_scaled_down_to_the_largest_program():
    wide, narrow = profile(1 << 24), profile(100_000)
    assert bounded(wide, (256, 1024)) == profile(1024 * 256)
    assert bounded(narrow, (256, 1024)) == narrow
    assert bounded(None, ()) is None
