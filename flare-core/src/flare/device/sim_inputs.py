"""Inputs besides tokens on the sim device: rows of tables, features of images, positions."""

from __future__ import annotations

import numpy as np

from flare.device.sim_ops import Array, mix, mix_array, operator

_AXES = np.array([[3], [5], [7]], dtype=np.uint64)


@operator("sim::encode(Tensor patches, Tensor grid, Tensor offset, Tensor(a!) features) -> ()")
def encode(patches: Array, grid: Array, offset: Array, features: Array) -> None:
    """Two patches make a feature: patches u64[N, 1], grid i32[3]; features u64[F] from row offset i32[1]."""
    count = int(np.prod(grid))
    values = patches[:count].reshape(-1).tolist()
    for index in range(count // 2):
        features[int(offset[0]) + index] = feature(values[2 * index], values[2 * index + 1])


def feature(first: int, second: int) -> int:
    """What two patches make."""
    return mix(first + 3 * second)


@operator(
    "sim::conditions(int tokens, Tensor? table_rows, Tensor? feature_indices, Tensor? features, "
    "Tensor? positions) -> Tensor"
)
def conditions(
    tokens: int,
    table_rows: Array | None,
    feature_indices: Array | None,
    features: Array | None,
    positions: Array | None,
) -> Array:
    """u64[tokens]: everything that is known about each token row besides its token, added up. table_rows
    u8[N, R, 8]; feature_indices i32[N] into features u64[F], negative for none; positions i32[3, N]."""
    total = np.zeros(tokens, dtype=np.uint64)
    if table_rows is not None:
        total += table_rows.reshape(tokens, -1).view(np.uint64).sum(1, dtype=np.uint64)
    if feature_indices is not None:
        assert features is not None
        total += np.where(feature_indices >= 0, features[np.maximum(feature_indices, 0)], np.uint64(0))
    if positions is not None:
        total += mix_array((positions.astype(np.uint64) * _AXES).sum(0, dtype=np.uint64))
    return total
