"""`flare::gather_rows` and `flare::embedding`."""

import pytest
import torch
from precision import same_bits

from flare_components.ops import reference

gather_rows = torch.ops.flare.gather_rows
embedding = torch.ops.flare.embedding


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("shape", [(5,), (5, 8), (5, 2, 3)])
def test_rows_are_copied_exactly(index_dtype, dtype, shape):
    x = torch.randint(-100, 100, shape).to(dtype)
    index = torch.tensor([4, -1, 0, 0, -7, 2], dtype=index_dtype)
    assert same_bits(gather_rows(x, index), reference.gather_rows(x, index))


def test_padding_does_not_read_the_table():
    x = torch.full((3, 4), torch.nan)
    assert same_bits(gather_rows(x, torch.tensor([-1, -1])), torch.zeros(2, 4))


def test_embedding_takes_ids_first():
    weight = torch.randn(10, 6).bfloat16()
    ids = torch.tensor([9, -1, 3], dtype=torch.int32)
    assert same_bits(embedding(ids, weight), reference.gather_rows(weight, ids))


def test_an_id_outside_the_table_is_refused():
    with pytest.raises((IndexError, RuntimeError)):
        embedding(torch.tensor([10]), torch.zeros(10, 6))
