"""What the management library says of a GPU's memory, and what it means for a context's size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cuda_fake import FakeDriver

from flare.device.cuda import nvml
from flare.device.cuda.context import Context

MIB = 1 << 20


class Library:
    """Answers `used` bytes one after another; `status` is what asking for a GPU returns."""

    def __init__(self, *used: int, status: int = 0) -> None:
        self.used, self.status, self.open = list(used), status, 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id: bytes, handle: Any) -> int:
        assert bus_id == b"fake:00"
        return self.status

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.used = self.used.pop(0)
        return 0


def use(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> None:
    def load(name: str) -> Library:
        if library is None:
            raise OSError(name)
        return library

    monkeypatch.setattr(nvml, "ctypes", SimpleNamespace(**vars(nvml.ctypes) | {"CDLL": load}))


def test_a_context_takes_what_is_used_more(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(700 * MIB, 1200 * MIB)
    use(monkeypatch, library)
    assert Context(FakeDriver(total=9000 * MIB, free=7000 * MIB)).nbytes == 500 * MIB
    assert library.open == 0


@pytest.mark.parametrize("library", [None, Library(1, 2, status=9)])
def test_where_nobody_tells_everything_in_use_is_counted(
    monkeypatch: pytest.MonkeyPatch, library: Library | None
) -> None:
    use(monkeypatch, library)
    assert Context(FakeDriver(total=9000 * MIB, free=7000 * MIB)).nbytes == 2000 * MIB
