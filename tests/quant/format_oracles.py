"""Compares number formats with FlashInfer's CPU references, in both directions where they have an encoder.

`scripts/format-oracles` runs it with the wheel; `--write` keeps small results of the references, which
test_frozen_formats.py holds the formats to without the package. Raises AssertionError at the first
difference. Codecs 1 and 2 of compressed scales have no reference on a CPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from oracle_package import Oracles
from packed_scales import one_bit

from flare_components.quant import csf, csf_bit, e2m1, e4m3, e8m0, fp8_block, mxfp8, nvfp4

FROZEN = Path(__file__).parents[1] / "data" / "number-formats.json"
E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
Vectors = dict[str, Any]


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Magnitudes over many powers of two, with zeros of both signs."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    values *= torch.exp2(torch.randint(-12, 6, (rows, 1), generator=generator).float())
    values[0, :3] = torch.tensor([0.0, -0.0, 1.0])
    return values


def between(values: list[float]) -> torch.Tensor:
    """The middles of neighbouring values, and the FP32 numbers next to each, with both signs."""
    middles = torch.tensor([(a + b) / 2 for a, b in pairwise(sorted(values))])
    sides = [torch.nextafter(middles, torch.full_like(middles, side)) for side in (-9e9, 9e9)]
    found = torch.cat([middles, *sides, torch.tensor(values)])
    return torch.cat([found, -found])


def elements(oracles: Oracles) -> Iterator[tuple[str, Any]]:
    """Every code of the element types, and rounding at every bound."""
    exact = oracles.exact
    table = torch.tensor(exact.E4M3_VALUES)
    codes = torch.arange(256, dtype=torch.uint8)
    same(e4m3.decode(codes.view(E4M3)), table, "E4M3 values")
    bounds = torch.cat([between(exact.E4M3_VALUES[:127]), torch.tensor([464.0, 465.0, -1e30])])
    wanted = [exact.e4m3_bits(exact.to_fp8(value, "e4m3")) for value in bounds.tolist()]
    same(e4m3.encode(bounds).view(torch.uint8), torch.tensor(wanted, dtype=torch.uint8), "E4M3 codes")
    pairs = torch.tensor([[exact.e2m1_value(byte & 15), exact.e2m1_value(byte >> 4)] for byte in range(256)])
    same(e2m1.decode(codes[:, None]), pairs, "E2M1 values")
    bounds = torch.cat([between(pairs[:8, 0].tolist()), torch.tensor([7.0, -1e30])])
    wanted = [exact.e2m1_code(exact.to_e2m1(value)) for value in bounds.tolist()]
    given = e2m1.encode(bounds.view(-1, 2))
    same(
        torch.stack((given & 15, given >> 4), 1).flatten(),
        torch.tensor(wanted, dtype=torch.uint8),
        "E2M1 codes",
    )
    powers = torch.tensor([exact.ue8m0_value(byte) for byte in range(256)])
    same(e8m0.decode(codes.view(E8M0)), powers, "E8M0 values")
    bounds = between(powers[:255].tolist()).abs()
    wanted = [exact.ue8m0_byte(exact.to_ue8m0(value, "rp")) for value in bounds.tolist()]
    same(e8m0.encode_above(bounds).view(torch.uint8), torch.tensor(wanted, dtype=torch.uint8), "E8M0 codes")
    yield "e4m3", floats(table)
    yield "e2m1", floats(pairs)
    yield "e8m0", floats(powers)


def fp4(oracles: Oracles) -> Iterator[tuple[str, Any]]:
    """NVFP4. The reference multiplies by rounded reciprocals where we divide: with a global scale that is a
    power of two nothing is rounded but the scales and codes themselves."""
    for seed in range(20):
        values, scale = matrix(8, 128, seed), torch.tensor(2.0**-9)
        packed, swizzled, _ = oracles.nvfp4.quantize_reference(values, 1 / scale)
        scales = oracles.nvfp4.unswizzle_sf_128x4(swizzled, 8, 128)
        stored = nvfp4.encode(values, scale)
        same(stored.scales.view(torch.uint8), scales, "scales of NVFP4")
        # x * (1 / step) and x / step round apart, so a code may differ where x lies between two codes.
        apart = nvfp4.decode(stored) != nvfp4.decode(nvfp4.Nvfp4(packed, scales.view(E4M3), scale))
        steps = scales.view(E4M3).float().repeat_interleave(16, 1) * scale
        middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
        distance = ((values / steps).abs()[..., None] - middles).abs().amin(-1)
        assert bool((distance[apart] < 1e-6).all()), "codes of NVFP4"
        for given in (scale, torch.tensor(0.0123)):
            held = nvfp4.Nvfp4(packed, scales.view(E4M3), given)
            exactly = oracles.nvfp4.dequantize(packed, swizzled, 1.0, 8, 128) * given.double()
            same(nvfp4.decode(held), exactly.float(), "values of NVFP4")
        if seed == 0:
            yield (
                "nvfp4",
                {
                    "shape": [8, 128],
                    "global_scale": 0.0123,
                    "codes": packed.numpy().tobytes().hex(),
                    "scales": scales.numpy().tobytes().hex(),
                    "values": floats(exactly.float()),
                },
            )


def fp8(oracles: Oracles) -> Iterator[tuple[str, Any]]:
    """MXFP8 and FP8 in blocks of 128 by 128."""
    rule = oracles.mx.S.ScaleRule(norm="div")
    for seed in range(20):
        values = matrix(8, 128, seed)
        codes, _, scales = oracles.mx.quantize_mx_reference(values, rule=rule)
        stored = mxfp8.encode(values)
        same(stored.scales.view(torch.uint8), scales, "scales of MXFP8")
        same(stored.codes.view(torch.uint8), codes, "codes of MXFP8")
        exactly = oracles.mx.dequantize_mx(codes, scales, oracles.mx.S.MXFP8, 128).float()
        same(mxfp8.decode(mxfp8.Mxfp8(codes.view(E4M3), scales.view(E8M0))), exactly, "values of MXFP8")
        if seed == 0:
            yield (
                "mxfp8",
                {
                    "shape": [8, 128],
                    "inputs": floats(values),
                    "codes": codes.numpy().tobytes().hex(),
                    "scales": scales.numpy().tobytes().hex(),
                    "values": floats(exactly),
                },
            )
    for seed in range(5):
        values = matrix(256, 384, seed)
        codes, scales = oracles.blocks.fp8_block_quant_2d(values)
        blocks = fp8_block.encode(values)
        same(blocks.scales, scales, "scales of FP8 blocks")
        same(blocks.codes.view(torch.uint8), codes.view(torch.uint8), "codes of FP8 blocks")
        # Products of ones, one in each row, are the weights; sums lose the sign of zero.
        weights = oracles.gemm._fp8_blockscale_gemm_sm90_reference(
            torch.eye(384), codes, None, scales, out_dtype=torch.float32
        ).T
        same(fp8_block.decode(fp8_block.Fp8Block(codes, scales)) + 0.0, weights, "values of FP8 blocks")
    small = matrix(4, 16, 0)
    codes, scales = oracles.blocks.fp8_block_quant_2d(small, 4)
    yield (
        "fp8_block",
        {
            "shape": [4, 16],
            "inputs": floats(small),
            "codes": codes.view(torch.uint8).numpy().tobytes().hex(),
            "scales": floats(scales),
        },
    )


def compressed(oracles: Oracles) -> Iterator[tuple[str, Any]]:
    """Codec 0 through the reference's repacking and expansion, one bit per scale through its repacking."""
    oracles.csf.Nvfp4CsfBatch.validate = lambda self: None  # it insists on a GPU
    for seed, (rows, columns) in enumerate([(128, 4), (128, 20), (256, 36), (384, 8)]):
        random = np.random.default_rng(seed)
        content = np.clip(random.normal(60, 7, (rows, columns)), 1, 126).astype(np.uint8)
        stored = csf.encode(torch.from_numpy(content))
        assert 0 < stored.exceptions.numel() < content.size / 4
        batch = oracles.csf.make_nvfp4_csf_batch(
            [stored.fixed.numpy()],
            [stored.exceptions.numpy()],
            rows=rows,
            columns=columns,
            device="cpu",
            layout=1,
            value_lut=torch.arange(256, dtype=torch.uint8),
        )
        expanded = oracles.packed_csf.expand_packed_csf_scales(
            oracles.packed_csf.build_packed_csf_scales(batch)
        )
        place = oracles.packed_csf.packed_slab_position(torch.arange(128))
        order = torch.cat([place + slab for slab in range(0, rows, 128)])
        same(expanded[0].T[order], torch.from_numpy(content), "CSF, codec 0")
        same(csf.decode(stored), torch.from_numpy(content), "CSF, codec 0")
        if seed == 0:
            yield (
                "csf",
                {
                    "shape": [rows, columns],
                    "scales": content.tobytes().hex(),
                    "fixed": stored.fixed.numpy().tobytes().hex(),
                    "exceptions": stored.exceptions.tolist(),
                },
            )
    for seed, columns in enumerate([2, 8, 10, 80]):
        random = np.random.default_rng(seed)
        base = random.integers(90, 140, 128).astype(np.uint8)
        content = (base[:, None] + random.integers(0, 2, (128, columns))).astype(np.uint8)
        content.ravel()[random.choice(content.size, 9, replace=False)] = random.integers(0, 247, 9)
        fixed, exceptions = one_bit(content, base)
        given = csf_bit.decode(torch.from_numpy(fixed), torch.from_numpy(exceptions), columns)
        same(given, torch.from_numpy(native_bits(oracles, fixed, exceptions, columns)), "one bit per scale")
        same(given, torch.from_numpy(content), "one bit per scale")
        if seed == 2:
            yield (
                "csf_bit",
                {
                    "shape": [128, columns],
                    "scales": content.tobytes().hex(),
                    "fixed": fixed.tobytes().hex(),
                    "exceptions": exceptions.tolist(),
                },
            )


class _Slabs:
    """What the reference repacks: one matrix of 128 rows."""

    num_experts, rows = 1, 128

    def __init__(self, fixed: Any, exceptions: Any, columns: int) -> None:
        self.columns = columns
        self.fixed, self.exceptions = torch.from_numpy(fixed[None]), torch.from_numpy(exceptions)
        self.exception_offsets = torch.tensor([0, len(exceptions)])

    def validate(self) -> None:
        pass


def native_bits(oracles: Oracles, fixed: Any, exceptions: Any, columns: int) -> Any:
    """The scales [128, columns] out of the reference's order: four columns of all rows after four others."""
    batch = oracles.bit_csf.repack_mxfp4_csf_batch(
        _Slabs(fixed, exceptions, columns), compact=True, group_rows=128
    )
    places = np.concatenate(
        [
            (np.arange(128)[:, None] * columns + np.arange(first, min(first + 4, columns))).ravel()
            for first in range(0, columns, 4)
        ]
    )
    bits = np.unpackbits(batch.selectors[0].numpy(), bitorder="little")[: len(places)]
    native = batch.bases[0].numpy()[places // columns] + bits
    records = batch.exceptions.numpy()
    native[records & 0xFFFFFF] = records >> 24
    out = np.empty(len(places), np.uint8)
    out[places] = native
    return out.reshape(128, columns)


def same(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Equal in every bit but those of NaN."""
    assert found.shape == wanted.shape, what
    bits = [
        tensor.nan_to_num(12345.0).contiguous().view(torch.int32) if tensor.is_floating_point() else tensor
        for tensor in (found, wanted)
    ]
    assert torch.equal(*bits), what


def floats(values: torch.Tensor) -> str:
    """FP32, little-endian, in hexadecimal."""
    return values.float().contiguous().numpy().tobytes().hex()


def main() -> None:
    """Compare; with `--write` keep the vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="a wheel of FlashInfer")
    parser.add_argument("--write", action="store_true", help=f"write {FROZEN.name}")
    arguments = parser.parse_args()
    vectors: Vectors = {"source": arguments.wheel.name.removesuffix(".whl")}
    with tempfile.TemporaryDirectory() as directory:
        oracles = Oracles(arguments.wheel, Path(directory))
        for part in (elements, fp4, fp8, compressed):
            vectors |= dict(part(oracles))
            print(f"{part.__name__}: equal")
    if arguments.write:
        FROZEN.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
