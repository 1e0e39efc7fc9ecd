"""A GPU is opened beside what a process does first, and what fails then is said when a core is loaded."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from cuda_fake import FakeDriver
from test_cuda_device import load

from flare.device import begin_device
from flare.device.cuda import opening
from flare.engine.early import begin, stored_device
from flare.errors import DeviceError


class SlowDriver(FakeDriver):
    """Takes its time for a context, as a real one."""

    def call(self, operation: str, *arguments: object) -> object:
        if operation == "cuDevicePrimaryCtxRetain":
            time.sleep(0.05)
        return super().call(operation, *arguments)


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_begun", {})


def test_what_was_begun_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CudaDriver", SlowDriver)
    began = time.perf_counter()
    begin_device("sm_90")
    begin_device("sm_90")
    assert time.perf_counter() - began < 0.05
    taken = opening.opening(0)
    driver, context = taken.result()
    assert context.architecture == "sm_90"
    assert taken.spans.keys() == {"driver", "context"}
    begins, ends = taken.spans["context"]
    assert began < begins < ends - 0.05
    assert opening.opening(0).result()[0] is not driver


def test_only_gpus_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CudaDriver", SlowDriver)
    for device in ("cpu", "sim", "quantum"):
        begin_device(device)
    assert not opening._begun


def test_a_core_is_loaded_onto_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CudaDriver", FakeDriver)
    begin_device("sm_90")
    opening._begun[0].result()
    device = load(None)
    assert device.load_spans["context"][1] <= 0 <= device.load_spans["memory"][0]
    device.close()
    driver: object = device._driver
    assert isinstance(driver, FakeDriver)
    assert driver.mapped == {}


def test_a_machine_without_a_driver_is_named_when_a_core_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> FakeDriver:
        raise DeviceError("no NVIDIA driver on this machine", field="driver")

    monkeypatch.setattr(opening, "CudaDriver", missing)
    begin_device("sm_90")
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        load(None)


def test_the_device_of_a_core_is_read(tiny_core: Path, tmp_path: Path) -> None:
    assert stored_device(str(tiny_core)) == "cpu"
    begin([str(tiny_core), "--endpoint", "ipc://nowhere"])
    whole = tiny_core.read_bytes()[:4096]
    texts = (b"", b"\x01", whole[:2000], b"\x08" + bytes(7) + b'{"a": 1}', b"\x04" + bytes(7) + b"null")
    for number, data in enumerate((*texts, b"\x80\x1a\x06" + bytes(5) + b"[" * 400_000)):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert stored_device(str(path)) is None
    begin([str(tmp_path)])
    begin([str(tmp_path / "missing")])
    begin([])


def test_a_gpu_is_begun_before_anything_large_is_imported() -> None:
    script = (
        "import sys\nimport flare.engine.early\nfrom flare.device.cuda import opening\n"
        "print(sorted({'numpy', 'pydantic', 'zmq', 'msgspec'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n", result.stderr
