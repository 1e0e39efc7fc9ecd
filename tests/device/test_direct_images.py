"""What token rows of a directly run prompt bring for its images."""

import numpy as np

from flare.device.direct_images import TEXT, SeenImages
from flare.testing.hash_images import image, packed, positions


def seen():
    images = [image("a", 2, 2, 3), image("b", 10, 1, 2)]
    places = positions(14, images)
    return images, places, SeenImages.of(images, packed(places))


def test_rows_of_a_prompt_and_of_what_follows_it():
    _, places, prompt = seen()
    features = [-1, -1, 0, 1, 2, 3, 4, 5, -1, -1, 6, 7, -1, -1]
    behind = max(map(max, places)) + 1
    everything = [*places, *((behind + step,) * 3 for step in range(3))]
    for begin in range(16):
        for length in range(1, 18 - begin):
            found, axes = prompt.rows(begin, length)
            want = [*features, -1, -1, -1][begin : begin + length]
            assert found.tolist() == want
            assert axes.T.tolist() == [list(place) for place in everything[begin : begin + length]]


def test_text_counts_on_all_axes():
    features, axes = TEXT.rows(5, 3)
    assert features.tolist() == [-1] * 3
    assert np.array_equal(axes, [[5, 6, 7]] * 3)
