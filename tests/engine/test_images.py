"""Images: encoded before the tokens that need them, part of a prefix's identity, cut and restored exactly."""

import numpy as np
import pytest
from engine_harness import Harness, request

from flare.cache import Conditioning
from flare.contract import ProgramKind, ValueSource
from flare.engine import image_values, packing
from flare.engine.messages import Finished, Rejected
from flare.scheduler import Request, Settings
from flare.scheduler.images import Images
from flare.testing.hash_images import PLACEHOLDER, image
from flare.testing.hash_model import HashModel

MODEL = HashModel(
    context=60,
    page_tokens=4,
    vocab_size=23,
    snapshot_rows=30,
    image_patches=(6, 12),
    image_features=14,
)


def prompt(*parts) -> tuple[tuple[int, ...], tuple]:
    """Tokens, and (name, rows, columns) of images."""
    tokens: list[int] = []
    images = []
    for part in parts:
        if isinstance(part, tuple):
            images.append(image(part[0], len(tokens), *part[1:]))
            tokens += [PLACEHOLDER] * images[-1].tokens
        else:
            tokens += part
    return tuple(tokens), tuple(images)


class Service(Harness):
    def __init__(self, model=MODEL, **options):
        super().__init__(model, **options)
        self.programs: list[str] = []
        submit = self.device.submit
        self.device.submit = lambda name, upload: (self.programs.append(name), submit(name, upload))[1]
        self.count = 0

    def ask(self, *parts, endpoints=(), max_tokens=4) -> tuple[int, list[str]]:
        """Cached tokens and vision programs of one request, whose output is right."""
        self.count += 1
        self.programs.clear()
        tokens, images = prompt(*parts)
        name = f"r{self.count}"
        self.submit(request(name, tokens, max_tokens, endpoints=endpoints, images=images))
        self.run()
        self.check()
        end = self.end(name)
        assert isinstance(end, Finished)
        return end.cached_tokens, [name for name in self.programs if name.startswith("vision")]


CAT, DOG = ("cat", 2, 3), ("dog", 2, 3)
TEXT = [5, 6, 7]


def test_an_image_is_encoded_by_the_smallest_program_that_takes_it():
    assert Service().ask(TEXT, ("dot", 1, 3), [8]) == (0, ["vision_6"])
    assert Service().ask(TEXT, CAT, [8]) == (0, ["vision_12"])
    assert Service().ask(CAT, DOG, ("dot", 1, 2)) == (0, ["vision_12", "vision_12", "vision_6"])
    assert Service().ask(TEXT) == (0, [])


def test_the_same_text_with_another_image_never_hits():
    service = Service()
    service.ask(TEXT, CAT, [8, 9])
    assert service.ask(TEXT, DOG, [8, 9])[0] <= 3
    assert service.ask(TEXT, ("cat", 3, 2), [8, 9])[0] <= 3, "the same pixels in another grid"
    assert service.ask(TEXT, CAT, [8, 9]) == (11, [])


def test_an_appended_image_keeps_the_earlier_prefix_and_is_the_only_one_encoded():
    service = Service()
    service.ask(TEXT, CAT, [8, 9])
    assert service.ask(TEXT, CAT, [8, 9], DOG, [3]) == (11, ["vision_12"])
    assert service.ask(TEXT, CAT, [8, 9], DOG, [3, 4, 4]) == (18, [])


@pytest.mark.parametrize("cut", range(4, 8))
def test_a_prefix_may_end_inside_an_image(cut):
    service = Service()
    service.ask(TEXT, CAT, [8, 9], endpoints=(cut,))
    assert service.ask(TEXT, CAT, [10, 11]) == (cut, ["vision_12"])


def test_swapped_images_are_another_prefix():
    service = Service()
    service.ask(CAT, DOG, [8])
    assert service.ask(DOG, CAT, [8])[0] == 0
    assert service.ask(CAT, DOG, [8])[0] == 13


def test_prompts_with_images_interleave():
    service = Service(settings=Settings(inter_token_ms=0.2))
    for number, parts in enumerate([(CAT, TEXT), (TEXT, DOG, [9] * 9), (TEXT,), (DOG, CAT)]):
        tokens, images = prompt(*parts)
        service.submit(request(f"r{number}", tokens, 9, seed=number, images=images))
    service.run()
    service.check()


def test_no_image_shares_a_pause_of_a_running_stream_with_a_chunk_or_another_image():
    service = Service()
    kinds = {program.name: program.kind for program in service.device.contract.programs}
    service.submit(request("stream", (5,) * 3, 40))
    while not service.output("stream"):
        service.engine.step()
    service.programs.clear()
    tokens, images = prompt(CAT, TEXT * 3, DOG, [8])
    service.submit(request("pictures", tokens, 4, images=images))
    service.run()
    service.check()
    ran = "".join(
        {ProgramKind.DECODE: "|", ProgramKind.VISION: "v", ProgramKind.PREFILL: "p"}.get(kinds[name], "")
        for name in service.programs
    )
    pauses = ran.strip("|").split("|")
    assert all(len(pause) <= 1 for pause in pauses), ran
    assert (ran.count("v"), ran.count("p") > 0) == (2, True)


def test_requests_with_images_reserve_everything_and_are_not_preempted():
    service = Service(HashModel(context=40, page_tokens=4, pages=13, image_patches=(12,), image_features=6))
    tokens, images = prompt(CAT)
    service.submit(request("text", (5,) * 8, 20))
    service.submit(request("picture", tokens, 18, images=images))
    service.submit(request("more", (6,) * 3, 20, seed=3))
    service.run()
    service.check()
    assert service.scheduler.preemptions > 0
    assert "picture" not in service.preempted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": (image("a", 0, 3, 3),)}, "an image has 18 patches; this core takes 12"),
        ({"images": (image("a", 0, 2, 3), image("b", 6, 2, 3), image("c", 12, 1, 3))}, "this core takes 14"),
        ({"images": (image("a", 18, 2, 3),)}, "overlap or lie outside"),
        ({"images": (image("a", 2, 2, 3), image("b", 7, 2, 3))}, "overlap or lie outside"),
        ({"rope_positions": b"\0" * 12}, "rope positions have 12 bytes for 20 tokens"),
    ],
)
def test_images_that_do_not_fit_are_refused(changes, message):
    service = Service()
    base = request("a", (1,) * 20)
    service.engine.submit(type(base)(**({f: getattr(base, f) for f in base.__struct_fields__} | changes)))
    end = service.end("a")
    assert isinstance(end, Rejected)
    assert message in end.message


def test_a_model_without_vision_takes_no_images():
    service = Service(HashModel())
    service.engine.submit(request("a", (1,) * 20, images=(image("a", 0, 2, 3),)))
    assert service.end("a").message == "this model takes no images"


def one_identity_for_all(monkeypatch):
    monkeypatch.setattr(
        "flare.scheduler.request.Conditioning", lambda position, _: Conditioning(position, b"same")
    )


def always_the_first_image(monkeypatch):
    monkeypatch.setattr(image_values, "_image", lambda plan: plan.lanes[0].request.spec.images[0])


def positions_of_text(monkeypatch):
    monkeypatch.setattr(
        image_values, "_positions", lambda lane: np.arange(lane.consumed, lane.consumed + lane.length)
    )


def features_one_too_far(monkeypatch):
    original = packing._PACKERS[ValueSource.FEATURE_OFFSET]

    def shifted(view, plan):
        original(view, plan)
        view[0] += view[0] > 0

    monkeypatch.setitem(packing._PACKERS, ValueSource.FEATURE_OFFSET, shifted)


@pytest.mark.parametrize(
    "plant", [one_identity_for_all, always_the_first_image, positions_of_text, features_one_too_far]
)
def test_a_planted_fault_is_noticed(monkeypatch, plant):
    def serve():
        service = Service()
        for animal in (CAT, DOG):
            service.ask(animal, [8], ("dot", 2, 3), TEXT, max_tokens=12)

    serve()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        serve()


def test_spans_that_are_atomic_are_never_cut():
    contract = MODEL.build().contract
    schemes = (contract.schemes[0].model_copy(update={"atomic_spans": True}), *contract.schemes[1:])
    images = Images(contract.model_copy(update={"schemes": schemes}))
    tokens, spans = prompt([5] * 5, CAT, [8] * 3)
    asked = Request(request("a", tokens, images=spans), max_tokens=4)
    assert [images.cut(asked, end) for end in (4, 5, 6, 10, 11, 12)] == [
        (4, False),
        (5, False),
        (5, False),
        (5, False),
        (11, False),
        (12, False),
    ]
    asked.consumed = 5
    assert images.cut(asked, 8) == (11, True)
    assert Images(contract).cut(asked, 8) == (8, False)
