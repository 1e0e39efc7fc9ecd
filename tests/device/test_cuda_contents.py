"""Contents on their way to a GPU: every byte arrives, host memory is bounded, failures are told."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from cuda_fake import FakeDriver

from flare.contract import BufferSpec, DType, Initial, Region
from flare.device.cuda import contents
from flare.device.cuda.arena import Arena
from flare.device.cuda.contents import ContentUpload
from flare.device.cuda.context import Context
from flare.device.cuda.layout import plan_layout
from flare.errors import CoreError, DeviceError

SIZES = (1, 63, 64, 65, 1000, 0, 40960, 100, 100, 1)


class Tensors:
    """Random tensors `t0`, `t1`, … in blocks of `block_bytes`; one block can be damaged."""

    def __init__(self, block_bytes: int, damaged: tuple[str, int] | None = None) -> None:
        random = np.random.default_rng(block_bytes)
        self.data = {
            f"t{n}": random.integers(0, 256, size, np.uint8).tobytes() for n, size in enumerate(SIZES)
        }
        self.block_bytes, self.damaged = block_bytes, damaged
        self.readers: set[str] = set()

    def blocks(self, name: str) -> list[tuple[int, int]]:
        size, step = len(self.data[name]), self.block_bytes
        return [(begin, min(begin + step, size)) for begin in range(0, size, step)]

    def read_blocks(self, name: str, first: int, count: int, out: memoryview) -> None:
        self.readers.add(threading.current_thread().name)
        if self.damaged is not None and self.damaged[0] == name and 0 <= self.damaged[1] - first < count:
            raise CoreError(f"tensor {name} is damaged in block {self.damaged[1]}", field=name)
        blocks = self.blocks(name)
        out[:] = self.data[name][blocks[first][0] : blocks[first + count - 1][1]]


def buffers(sizes: Sequence[int] = SIZES) -> list[BufferSpec]:
    specs, offset = [], 0
    for number, size in enumerate(sizes):
        specs.append(
            BufferSpec(
                name=f"b{number}",
                region=Region.WEIGHTS,
                dtype=DType.U8,
                shape=(size,),
                offset=offset,
                initial=Initial.BYTES,
                tensor=f"t{number}",
            )
        )
        offset += size + 7
    return specs


def placed(driver: FakeDriver) -> Arena:
    arena = Arena(driver, plan_layout())
    for spec in buffers():
        arena.place(spec.name, spec.region, spec.offset, spec.nbytes)
    return arena


@pytest.mark.parametrize("block_bytes", [64, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("host_bytes", [1, 1 << 14, 1 << 28])
@pytest.mark.parametrize("run_bytes", [1, 8192])
def test_every_byte_arrives(
    block_bytes: int, threads: int, host_bytes: int, run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_RUN_BYTES", run_bytes)
    driver, tensors = FakeDriver(), Tensors(block_bytes)
    arena, context = placed(driver), Context(driver)
    upload = ContentUpload(tensors, buffers(), threads=threads, host_bytes=host_bytes)
    upload.open(driver, context, None, arena.book)
    upload.wait()
    upload.close()
    for number in range(len(SIZES)):
        span = arena.book.span(f"b{number}")
        assert bytes(driver.window(span.start, span.nbytes)) == tensors.data[f"t{number}"], number
    assert driver.pinned == 0
    assert driver.count["cuEventDestroy"] == driver.count["cuEventCreate"]
    assert len(tensors.readers) <= threads


def test_reading_begins_before_there_is_a_gpu() -> None:
    tensors = Tensors(4096)
    upload = ContentUpload(tensors, buffers(), threads=1)
    while not tensors.readers:
        pass
    upload.close()
    upload.close()


def test_damage_stops_the_upload_and_is_named() -> None:
    driver, tensors = FakeDriver(), Tensors(4096, ("t6", 7))
    upload = ContentUpload(tensors, buffers(), threads=2)
    upload.open(driver, Context(driver), None, placed(driver).book)
    with pytest.raises(CoreError, match="tensor t6 is damaged in block 7"):
        upload.wait()
    upload.close()
    assert driver.pinned == 0


def test_a_copy_that_fails_is_told() -> None:
    driver = FakeDriver()
    arena = placed(driver)
    upload = ContentUpload(Tensors(4096), buffers(), threads=3)
    driver.fail = {"cuMemcpyHtoDAsync": 700}
    upload.open(driver, Context(driver), None, arena.book)
    with pytest.raises(DeviceError, match="cuMemcpyHtoDAsync failed"):
        upload.wait()
    upload.close()


def test_a_tensor_of_another_size() -> None:
    sizes = list(SIZES)
    sizes[4] += 1
    with pytest.raises(CoreError, match="tensor t4 has 1000 bytes and does not fill buffer b4"):
        ContentUpload(Tensors(4096), buffers(sizes))
