"""Every format against results that FlashInfer's references gave (`scripts/format-oracles --write`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from format_oracles import E4M3, E8M0, FROZEN, floats
from packed_scales import narrow, split_bits, words

from flare_components.quant import csf, csf_bit, csf_split, e2m1, e4m3, e8m0, fp8_block, mxfp8, nvfp4


@pytest.fixture(scope="module")
def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FROZEN.read_text())
    return found


def codes(text: str, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(bytes.fromhex(text), np.uint8).copy()).view(*shape)


def values(text: str, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(bytes.fromhex(text), np.float32).copy()).view(*shape)


def test_every_element(frozen: dict[str, Any]) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert floats(e2m1.decode(every[:, None])) == frozen["e2m1"]
    for decoded, name in ((e4m3.decode(every.view(E4M3)), "e4m3"), (e8m0.decode(every.view(E8M0)), "e8m0")):
        wanted = values(frozen[name], 256)
        assert torch.equal(decoded.isnan(), wanted.isnan())
        assert torch.equal(decoded.nan_to_num(), wanted.nan_to_num())


def test_nvfp4(frozen: dict[str, Any]) -> None:
    given = frozen["nvfp4"]
    rows, columns = given["shape"]
    scales = codes(given["scales"], rows, columns // 16)
    packed = codes(given["codes"], rows, columns // 2)
    matrix = nvfp4.Nvfp4(packed, scales.view(E4M3), torch.tensor(given["global_scale"]))
    assert floats(nvfp4.decode(matrix)) == given["values"]


def test_mxfp8(frozen: dict[str, Any]) -> None:
    given = frozen["mxfp8"]
    rows, columns = given["shape"]
    stored = mxfp8.encode(values(given["inputs"], rows, columns))
    assert torch.equal(stored.codes.view(torch.uint8), codes(given["codes"], rows, columns))
    assert torch.equal(stored.scales.view(torch.uint8), codes(given["scales"], rows, columns // 32))
    assert floats(mxfp8.decode(stored)) == given["values"]


def test_fp8_blocks(frozen: dict[str, Any]) -> None:
    given = frozen["fp8_block"]
    rows, columns = given["shape"]
    stored = fp8_block.encode(values(given["inputs"], rows, columns), (4, 4))
    assert torch.equal(stored.codes.view(torch.uint8), codes(given["codes"], rows, columns))
    assert floats(stored.scales) == given["scales"]


def test_compressed_scales(frozen: dict[str, Any]) -> None:
    given = frozen["csf"]
    rows, columns = given["shape"]
    content = codes(given["scales"], rows, columns)
    stored = csf.encode(content)
    assert torch.equal(stored.fixed, codes(given["fixed"], rows // 16, -1))
    assert stored.exceptions.tolist() == given["exceptions"]
    assert torch.equal(csf.decode(stored), content)


def test_one_bit_per_scale(frozen: dict[str, Any]) -> None:
    given = frozen["csf_bit"]
    rows, columns = given["shape"]
    exceptions = torch.tensor(given["exceptions"], dtype=torch.int64).to(torch.uint32)
    found = csf_bit.decode(codes(given["fixed"], rows // 16, -1), exceptions, columns)
    assert torch.equal(found, codes(given["scales"], rows, columns))


@pytest.mark.parametrize(("rows", "columns"), [(16, 8), (48, 24), (128, 160)])
def test_split_scales_keep_every_byte(rows: int, columns: int) -> None:
    """Codecs 1 and 2 by an encoder that lays out bits in another way than the decoder takes them apart."""
    random = np.random.default_rng(columns)
    base = random.integers(0, 31, rows).astype(np.uint8)
    content = (base[:, None] + random.integers(0, 2, (rows, columns))) << 3 | random.integers(
        0, 8, (rows, columns)
    )
    content.ravel()[random.choice(content.size, 40, replace=False)] = random.integers(0, 256, 40)
    scales = content.astype(np.uint8)
    fixed, places = split_bits(scales, base)
    assert 0 < len(places) <= 40
    wide, short = (words(scales.ravel() >> 3, places, position) for position in (24, 19))
    given = torch.from_numpy(fixed)
    assert np.array_equal(csf_split.decode_wide(given, torch.from_numpy(wide)).numpy(), scales)
    assert np.array_equal(csf_split.decode_narrow(given, torch.from_numpy(narrow(short))).numpy(), scales)
