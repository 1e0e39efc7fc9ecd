"""The CUDA device over a fake driver: contents, frames, refusals, and that everything is given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cuda_fake import GRANULE, FakeDriver

from flare.contract import BufferSpec, DType, Initial, PreparedContract, RecurrentScheme, Region, row_geometry
from flare.device import KINDS, LoadOptions, family, load_device
from flare.device.cuda import gpu_host
from flare.device.cuda.address_book import Address
from flare.device.cuda.cuda_device import CudaDevice
from flare.device.cuda.graph_spec import (
    VERSION,
    CopyNode,
    Edge,
    FillNode,
    GraphSpec,
    KernelNode,
    Node,
    Parameter,
    Pitched,
    Pointer,
    encode,
    image_tensor,
)
from flare.device.cuda.layout import DEFAULT_BASE, plan_layout
from flare.errors import CapacityError, CoreError, DeviceError

# Shared with the scripts that a machine with a GPU runs.
sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
from small_contract import CHUNK, PAGE, PAGES, TOKENS, WIDTH, small_contract

LAYOUT = plan_layout()
COMPLETION_BYTES = CHUNK * WIDTH * 4
BUFFERS = (
    BufferSpec(
        name="weights/w",
        region=Region.WEIGHTS,
        dtype=DType.U8,
        shape=(COMPLETION_BYTES,),
        offset=0,
        initial=Initial.BYTES,
        tensor="w",
    ),
    BufferSpec(name="pages", region=Region.PAGES, dtype=DType.U8, shape=(PAGES, PAGE.nbytes), offset=0),
    BufferSpec(name="upload", region=Region.UPLOAD, dtype=DType.U8, shape=(CHUNK * 4,), offset=0),
    BufferSpec(
        name="completion", region=Region.COMPLETION, dtype=DType.U8, shape=(COMPLETION_BYTES,), offset=0
    ),
)
WEIGHTS = np.random.default_rng(1).integers(0, 256, COMPLETION_BYTES, np.uint8)


class Source(dict[str, bytes]):
    """Tensors in memory as a device reads them."""

    def bytes(self, name: str) -> memoryview:
        return memoryview(self[name])

    load = bytes

    block_bytes = 4096

    def blocks(self, name: str) -> list[tuple[int, int]]:
        size, step = len(self[name]), self.block_bytes
        return [(begin, min(begin + step, size)) for begin in range(0, size, step)]

    def read_blocks(self, name: str, first: int, count: int, out: memoryview) -> None:
        blocks = self.blocks(name)
        out[:] = self[name][blocks[first][0] : blocks[first + count - 1][1]]


def copy(source: str, target: str, nbytes: int) -> CopyNode:
    return CopyNode(Pitched(Address(source, 0), 0, 0), Pitched(Address(target, 0), 0, 0), (nbytes, 1, 1))


def graph(*nodes: Node) -> GraphSpec:
    return GraphSpec(VERSION, "sm_90", 13000, LAYOUT, nodes, ())


GRAPHS = {
    "start": graph(FillNode(Address("pages", 0), 7, 1, 16, 1, 0)),
    "prefill": graph(
        copy("weights/w", "completion", COMPLETION_BYTES), copy("upload", "completion", CHUNK * 4)
    ),
    "decode": graph(copy("upload", "completion", 4)),
}


def source(graphs: dict[str, GraphSpec] = GRAPHS) -> Source:
    tensors = {f"program/{name}": encode(spec) for name, spec in graphs.items()}
    return Source(tensors, w=WEIGHTS.tobytes(), tokenizer=b"{}")


def contract() -> PreparedContract:
    return small_contract(BUFFERS, "sm_90")


def load(driver: FakeDriver | None, graphs: dict[str, GraphSpec] = GRAPHS, **settings: bool) -> CudaDevice:
    return CudaDevice(contract(), source(graphs), driver=driver, **settings)


def tokens(seed: int, count: int = CHUNK) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, count, np.int32).view(np.uint8)


@pytest.mark.parametrize("relocate", [False, True])
def test_programs_read_uploads_and_report(relocate: bool) -> None:
    spec = {name: msgspec.structs.replace(graph, relocatable=True) for name, graph in GRAPHS.items()}
    device = load(FakeDriver(), spec, relocate=relocate)
    begun = device.submit("start", np.empty(0, np.uint8))
    assert begun.wait()
    assert not begun.completion.size
    assert device.read("pages")[:17].tolist() == [7] * 16 + [0]
    upload = tokens(2)
    frame = device.submit("prefill", upload)
    upload[:] = 0  # the device took it
    assert frame.wait()
    assert frame.completion[: CHUNK * 4].tobytes() == tokens(2).tobytes()
    assert frame.completion[CHUNK * 4 :].tobytes() == WEIGHTS[CHUNK * 4 :].tobytes()
    assert frame.elapsed_us == 250
    device.write("pages", np.full((PAGES, PAGE.nbytes), 9, np.uint8))
    assert set(device.read("pages").tolist()) == {9}


def test_two_frames_in_flight() -> None:
    driver = FakeDriver()
    device = load(driver)
    driver.busy = True
    first, second = device.submit("decode", tokens(3, 1)), device.submit("decode", tokens(4, 1))
    assert not first.done()
    assert not first.wait(0.001)
    with pytest.raises(AssertionError, match="too many frames"):
        device.submit("decode", tokens(5, 1))
    driver.busy = False
    assert second.wait(1)
    # A completion outlives the use of its slot by later frames.
    third = device.submit("decode", tokens(5, 1))
    assert [frame.wait() for frame in (first, third)] == [True, True]
    for frame, seed in ((first, 3), (second, 4), (third, 5)):
        assert frame.completion[:4].tobytes() == tokens(seed, 1).tobytes()


def test_a_failing_program_is_named() -> None:
    driver = FakeDriver()
    device = load(driver)
    frame = device.submit("decode", tokens(1, 1))
    driver.fail = {"cuEventQuery": 700, "cuEventSynchronize": 700}
    for wait in (frame.done, frame.wait):
        with pytest.raises(DeviceError, match=r"program decode failed: cuEventSynchronize .* \(700\)"):
            wait()
    device.close()


def test_everything_is_counted_and_given_back() -> None:
    driver = FakeDriver()
    device = load(driver)
    granule = 2 << 20
    assert device.ledger == {
        **dict.fromkeys(("weights", "pages", "upload", "completion"), granule),
        **dict.fromkeys(("context", "modules", "graphs"), 0),
        "pinned_host": 2 * (CHUNK * 4 + COMPLETION_BYTES),
    }
    spans = device.load_spans
    assert spans.keys() == {
        *("driver", "context", "programs", "memory", "modules", "graphs", "pages"),
        *("contents", "waiting for contents", "total"),
    }
    for name, (begin, end) in spans.items():
        assert 0 <= begin <= end <= spans["total"][1], name
    device.close()
    device.close()
    check_clean(driver)


def test_nothing_is_taken_by_a_device_that_is_ready() -> None:
    driver = FakeDriver()
    device = load(driver)
    loading = driver.resources.loading
    assert {"cuMemAddressReserve", "cuMemCreate", "cuMemHostAlloc", "cuGraphInstantiate"} <= set(loading)
    for seed in range(5):
        frame = device.submit("prefill", tokens(seed))
        assert frame.wait()
        device.read_blocks(Region.PAGES, [1, 2])
    device.read("pages")
    assert device.growth == 0
    taken = (
        "cuMemCreate",
        "cuModuleLoadDataEx",
        "cuGraphAddKernelNode",
        "cuStreamBeginCapture",
        "cuEventCreate",
    )
    for operation in (*taken, "cuGraphLaunch", "cuMemcpyHtoD", "cuMemGetInfo", "cuEventRecord"):
        driver.resources.note(operation)
    assert driver.resources.serving == dict.fromkeys(taken, 1)
    assert device.growth == len(taken)


def check_clean(driver: FakeDriver) -> None:
    assert driver.mapped == {}
    assert driver.pinned == 0
    count = driver.count
    assert count["cuDevicePrimaryCtxRelease"] == count["cuDevicePrimaryCtxRetain"]
    assert count["cuStreamDestroy"] == count["cuStreamCreate"]
    assert count["cuEventDestroy"] == count["cuEventCreate"]
    assert count["cuGraphExecDestroy"] == count["cuGraphInstantiate"]
    assert count["cuGraphDestroy"] == count["cuGraphCreate"]
    assert count["cuModuleUnload"] == count["cuModuleLoadData"]


def kernel(offset: int = 0) -> KernelNode:
    value = (LAYOUT.start(Region.PAGES) + offset).to_bytes(8, "little")
    parameters = (Parameter(value, (Pointer(0, "pages", offset),)),)
    return KernelNode("d" * 64, "fill_rows", (1, 1, 1), (32, 1, 1), 0, parameters)


def with_kernel(*, relocatable: bool, **changes: object) -> dict[str, GraphSpec]:
    spec = msgspec.structs.replace(graph(kernel(64)), relocatable=relocatable, **changes)
    return {name: msgspec.structs.replace(s, relocatable=True) for name, s in GRAPHS.items()} | {
        "start": spec
    }


@pytest.mark.parametrize("relocate", [False, True])
def test_kernels_get_the_addresses_of_this_process(relocate: bool) -> None:
    driver = FakeDriver()
    tensors = source(with_kernel(relocatable=relocate))
    tensors[image_tensor("d" * 64)] = b"image"
    device = CudaDevice(contract(), tensors, driver=driver, relocate=relocate)
    (launch,) = driver.kernels
    address = int.from_bytes(launch.values[0], "little")
    assert address == device._book.span("pages").start + 64
    assert (device._book.span("weights/w").start == DEFAULT_BASE) != relocate


def test_only_full_edges_are_added_together() -> None:
    """A call gives all its edges the data of the first."""
    driver = FakeDriver()
    fills = [FillNode(Address("pages", 0), number, 1, 16, 1, 0) for number in range(4)]
    edges = (Edge(0, 1, 1, 0, True), Edge(1, 2), Edge(2, 3, 1, 0, True), Edge(0, 3))
    load(driver, GRAPHS | {"start": msgspec.structs.replace(graph(*fills), edges=edges)})
    calls = []
    for _, before, after, data, count in driver.edges:
        assert len(before) == len(after) == len(data) == count
        ends = zip(before, after, data, strict=True)
        calls.append([Edge(b.value, a.value, d.from_port, d.to_port, bool(d.type)) for b, a, d in ends])
    assert calls == [[edges[1], edges[3]], [edges[0]], [edges[2]]]


def test_a_graph_that_must_not_move() -> None:
    driver = FakeDriver()
    tensors = source(with_kernel(relocatable=False, immovable="a table of pointers"))
    tensors[image_tensor("d" * 64)] = b"image"
    with pytest.raises(
        DeviceError,
        match=r"node 0 \(fill_rows\) has addresses of 0x3c0500000000 that must not be moved "
        r"\(a table of pointers\): load the core at that base",
    ):
        CudaDevice(contract(), tensors, driver=driver, relocate=True)
    check_clean(driver)


def test_an_image_that_does_not_load() -> None:
    driver = FakeDriver()
    driver.fail = {"cuModuleLoadData": 209}
    tensors = source(with_kernel(relocatable=False))
    tensors[image_tensor("d" * 64)] = b"image"
    with pytest.raises(DeviceError, match=r"does not load on sm_90 .* update the driver, or prepare"):
        CudaDevice(contract(), tensors, driver=driver)


def test_another_architecture() -> None:
    driver = FakeDriver(capability=(12, 0))
    with pytest.raises(DeviceError, match=r"is for sm_90, this GPU \(a fake\) is sm_120: prepare"):
        load(driver)
    check_clean(driver)


def test_an_old_driver() -> None:
    driver = FakeDriver()
    driver.version = 12080
    with pytest.raises(DeviceError, match=r"needs a driver for CUDA 13, this one is for 12\.8: update"):
        load(driver)


def test_taken_addresses() -> None:
    driver = FakeDriver(taken=(DEFAULT_BASE,))
    with pytest.raises(DeviceError, match="not free in this process"):
        load(driver)
    check_clean(driver)


def test_a_gpu_that_is_too_small() -> None:
    driver = FakeDriver(free=70 << 20)
    with pytest.raises(
        CapacityError, match=r"5 pages of 8192 bytes .* there is room for 0: end other"
    ) as error:
        load(driver)
    assert error.value.field == "cache_tokens"
    assert not driver.count["cuMemcpyHtoDAsync"]  # said before any weight was copied
    check_clean(driver)


SNAPSHOTS = (RecurrentScheme(name="memory", dtype=DType.F32, shape=(4096,)),)


def ranged_contract() -> PreparedContract:
    """Like `contract`, with rows, and with more pages and rows to choose from than are recorded."""
    base = contract()
    schemes = (*base.schemes, *SNAPSHOTS)
    row = row_geometry(schemes)
    capacities = base.capacities.model_copy(update={"page_range": 5000, "snapshot_row_range": 700})
    pages = BUFFERS[1].model_copy(update={"shape": (5000, PAGE.nbytes)})
    rows = BufferSpec(name="rows", region=Region.ROWS, dtype=DType.U8, shape=(702, row.nbytes), offset=0)
    update = {
        "schemes": schemes,
        "row": row,
        "capacities": capacities,
        "buffers": (BUFFERS[0], pages, *BUFFERS[2:], rows),
    }
    return PreparedContract.model_validate(
        base.model_dump()
        | {
            name: [v.model_dump() for v in value] if isinstance(value, tuple) else value.model_dump()
            for name, value in update.items()
        }
    )


def test_pages_and_rows_are_what_the_memory_has_room_for() -> None:
    driver = FakeDriver(total=100 << 20, free=100 << 20)
    device = CudaDevice(ranged_contract(), source(), driver=driver)
    # 90 MiB less the driver's margin, three granules of other regions, and two of rounding.
    room = (90 << 20) - (64 << 20) - 5 * GRANULE
    row_bytes, capacities = device.contract.row.nbytes, device.contract.capacities
    pages = (room - 2 * row_bytes) // PAGE.nbytes
    wanted = max(8, min(pages // 2, pages * PAGE.nbytes // (16 * row_bytes)))
    assert capacities.snapshot_rows == wanted
    assert capacities.pages == (room - (2 + wanted) * row_bytes) // PAGE.nbytes
    assert device.ledger["pages"] + device.ledger["rows"] <= room + 2 * GRANULE
    assert device.read("pages").nbytes == capacities.pages * PAGE.nbytes
    last = capacities.pages - 1
    device.write_blocks(Region.PAGES, [last], np.full((1, PAGE.nbytes), 3, np.uint8))
    assert set(device.read_blocks(Region.PAGES, [last]).ravel().tolist()) == {3}
    device.close()
    check_clean(driver)


def test_chosen_numbers_of_pages_and_rows() -> None:
    options = LoadOptions(cache_tokens=20 * CHUNK - 1, snapshot_rows=3)
    device = CudaDevice(ranged_contract(), source(), options, driver=FakeDriver())
    assert device.contract.capacities.pages == 21
    assert device.contract.capacities.snapshot_rows == 3
    assert PreparedContract.model_validate(device.contract.model_dump()) == device.contract
    most = CudaDevice(ranged_contract(), source(), driver=FakeDriver())
    assert (most.contract.capacities.pages, most.contract.capacities.snapshot_rows) == (5000, 156)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(cache_tokens=3 * CHUNK), "cache-tokens 48 cannot hold one context of 64 tokens"),
        (LoadOptions(cache_tokens=5000 * CHUNK), "cache-tokens 80000 exceed the 79984 that this core was"),
        (LoadOptions(snapshot_rows=701), "snapshot-rows 701 exceed the 700 that this core was prepared for"),
        (LoadOptions(cache_tokens=4998 * CHUNK), "4999 pages of 8192 bytes .* there is room for"),
        (LoadOptions(gpu_memory_utilization=0.5), "there is room for 0: end other"),
    ],
)
def test_choices_that_cannot_be(options: LoadOptions, message: str) -> None:
    driver = FakeDriver(total=100 << 20, free=100 << 20)
    with pytest.raises(CapacityError, match=message):
        CudaDevice(ranged_contract(), source(), options, driver=driver)
    check_clean(driver)


def test_cores_for_other_devices() -> None:
    program = contract().programs[0]
    payload = program.payloads[0].model_copy(update={"format": "oplist"})
    changed = program.model_copy(update={"payloads": (payload,)})
    other = contract().model_copy(update={"programs": (changed, *contract().programs[1:])})
    with pytest.raises(CoreError, match="payload format oplist is not for a GPU"):
        CudaDevice(other, source(), driver=FakeDriver())
    elsewhere = msgspec.structs.replace(GRAPHS["decode"], layout=plan_layout(DEFAULT_BASE + (1 << 40)))
    with pytest.raises(CoreError, match="captured in different arenas"):
        load(FakeDriver(), GRAPHS | {"decode": elsewhere})
    tensors = source()
    tensors["w"] = b"short"
    with pytest.raises(CoreError, match="tensor w has 5 bytes and does not fill buffer weights/w"):
        CudaDevice(contract(), tensors, driver=FakeDriver())


def test_serving_needs_no_torch() -> None:
    script = "import sys; import flare.device.cuda.cuda_device; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "False", result.stderr


def test_no_driver_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match=r"pip install 'flare-core\[cuda\]'"):
        CudaDevice(contract(), source())


def test_every_program_is_there() -> None:
    assert set(GRAPHS) == set(TOKENS)


def test_blocks_are_copied_beside_programs() -> None:
    device = load(FakeDriver())
    data = np.random.default_rng(4).integers(0, 256, (3, PAGE.nbytes), np.uint8)
    device.write_blocks(Region.PAGES, [3, 1, 2], data)
    assert device.read_blocks(Region.PAGES, [2, 3, 1]).tolist() == data[[2, 0, 1]].tolist()
    assert not device.read_blocks(Region.PAGES, [0, 4]).any()
    assert device.read("pages").reshape(PAGES, -1)[1:4].tolist() == data[[1, 2, 0]].tolist()
    assert device.read_blocks(Region.PAGES, []).shape == (0, PAGE.nbytes)
    with pytest.raises(CoreError, match="0 rows buffers, expected one"):
        device.read_blocks(Region.ROWS, [0])


def test_consecutive_blocks_are_one_copy() -> None:
    driver = FakeDriver()
    device = load(driver)
    before = driver.count["cuMemcpyDtoHAsync"]
    device.read_blocks(Region.PAGES, [0, 1, 2, 4, 3])
    assert driver.count["cuMemcpyDtoHAsync"] - before == 3


def test_a_core_for_a_gpu_gets_this_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("flare.device.cuda.cuda_device.CudaDevice", lambda *given: made.append(given))
    load_device(contract(), source())
    assert made[0][0].identity.device == "sm_90"
    assert {family(kind) for kind in ("sm_90", "sm_100a", "cpu", "sim")} == set(KINDS)


def test_conditions_of_a_gpu() -> None:
    assert gpu_host.arithmetic_conditions(FakeDriver()) == {"gpu": "a fake", "architecture": "sm_90"}
