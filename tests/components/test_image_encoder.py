"""The image encoder against Transformers' class, at several grids and capacities."""

import copy

import gated_towers
import pytest
import torch
import towers

import flare_components.ops  # noqa: F401  (registers flare::*)

KINDS = {"learned positions": towers, "normalised heads": gated_towers}
GRIDS = [(1, 2, 2), (1, 4, 6), (1, 10, 4), (2, 4, 4), (1, 16, 16), (1, 6, 40), (1, 18, 30)]
CAPACITIES = (16, 64, 256, 1024)


def patches_of(sizes, tower):
    config = tower.config
    elements = 3 * config.temporal_patch_size * config.patch_size**2
    return torch.randn(sizes[0] * sizes[1] * sizes[2], elements)


def padded(patches, capacity, value=0.0):
    return torch.nn.functional.pad(patches, (0, 0, 0, capacity - len(patches)), value=value)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def pair(kind):
    tower = kind.canonical_tower()
    return tower, kind.image_encoder(copy.deepcopy(tower))


@pytest.fixture
def served_linears(monkeypatch):
    """FP32 products as in programs, which have `flare::linear`: torch's follow the processor and the rows."""
    plain = torch.nn.functional.linear

    def product(x, weight, bias=None):
        return (torch.ops.flare.linear if x.dtype == torch.float32 else plain)(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", product)


@pytest.mark.parametrize("sizes", GRIDS)
@torch.inference_mode()
def test_features_are_those_of_transformers(pair, sizes):
    tower, encoder = pair
    patches, grid = patches_of(sizes, tower), torch.tensor(sizes, dtype=torch.int32)
    want = tower(patches, torch.tensor([sizes])).pooler_output
    for capacity in (size for size in CAPACITIES if size >= len(patches)):
        found = encoder(padded(patches, capacity), grid)
        assert found.shape == (capacity // 4, tower.config.out_hidden_size)
        assert float((found[: len(want)] - want).abs().max()) < 1e-5 * float(want.abs().max())


@torch.inference_mode()
def test_images_one_by_one_are_those_of_transformers_together(pair):
    tower, encoder = pair
    patches = [patches_of(sizes, tower) for sizes in GRIDS]
    want = tower(torch.cat(patches), torch.tensor(GRIDS)).pooler_output
    found = [
        encoder(own, torch.tensor(sizes, dtype=torch.int32))
        for own, sizes in zip(patches, GRIDS, strict=True)
    ]
    assert float((torch.cat(found) - want).abs().max()) < 1e-5 * float(want.abs().max())


@torch.no_grad()
def test_one_traced_program_takes_every_grid(pair):
    tower, encoder = pair
    capacity = 256
    example = torch.zeros(capacity, encoder.patch_elements), torch.tensor((1, 2, 2), dtype=torch.int32)
    traced = torch.export.export(encoder, example).module()
    for sizes in (grid for grid in GRIDS if grid[0] * grid[1] * grid[2] <= capacity):
        patches, grid = patches_of(sizes, tower), torch.tensor(sizes, dtype=torch.int32)
        given = padded(patches, capacity), grid
        count = len(patches) // 4
        assert torch.equal(traced(*given)[:count], encoder(*given)[:count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 2, 2), (1, 4, 4), (2, 6, 4), (1, 14, 18)])
@torch.inference_mode()
def test_the_bits_do_not_depend_on_the_capacity_nor_on_the_padding(kind, served_linears, dtype, sizes):
    tower = kind.canonical_tower(hidden=72, width=40)
    frequencies = tower.rotary_pos_emb.inv_freq
    encoder = kind.image_encoder(tower.to(dtype))
    encoder.frequencies = frequencies  # FP32, in whatever type the encoder computes
    patches, grid = patches_of(sizes, tower), torch.tensor(sizes, dtype=torch.int32)
    features = len(patches) // 4
    results = [
        encoder(padded(patches, capacity, value), grid)[:features]
        for capacity in (*CAPACITIES, 4096)
        if capacity >= len(patches)
        for value in (0.0, 1e4)
    ]
    assert results
    for other in results[1:]:
        assert torch.equal(other, results[0])


@pytest.mark.parametrize("sizes", GRIDS)
@torch.inference_mode()
def test_bf16_features_are_as_near_as_those_of_transformers(kind, pair, sizes):
    tower, _ = pair
    frequencies = tower.rotary_pos_emb.inv_freq
    rounded = copy.deepcopy(tower).bfloat16()
    rounded.rotary_pos_emb.inv_freq = frequencies
    encoder = kind.image_encoder(copy.deepcopy(rounded))
    encoder.frequencies = frequencies
    exact = copy.deepcopy(rounded).float()
    exact.rotary_pos_emb.inv_freq = frequencies
    patches = patches_of(sizes, tower).bfloat16().float()
    want = exact(patches, torch.tensor([sizes])).pooler_output
    theirs = rounded(patches, torch.tensor([sizes])).pooler_output.float()
    ours = encoder(patches, torch.tensor(sizes, dtype=torch.int32)).float()
    assert float((ours - want).norm()) < 1.2 * float((theirs - want).norm())
