"""Keeps an address of an arena in a variable of a kernel's module and in a buffer, and looks for it.

usage: kept_addresses.py    prints what was found as JSON
"""

from __future__ import annotations

import json

import numpy as np
import torch
from small_core import Rig

from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_export import export_graph
from flare.device.cuda.layout import DEFAULT_BASE
from flare.device.cuda.modules import ModuleRegistry
from flare.device.cuda.torch_pool import capture
from flare.prepare.cuda_hidden import scan

KEEPING_PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 8 .u64 kept;
.visible .entry bump_kept() {
    .reg .b64 %address;
    .reg .b32 %value;
    ld.global.u64 %address, [kept];
    ld.global.u32 %value, [%address];
    add.u32 %value, %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""
"""A kernel that finds its operand in a variable of its module."""


def main() -> None:
    driver, registry = CudaDriver(), ModuleRegistry()
    registry.watch()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    rig = Rig(driver, DEFAULT_BASE)
    module = driver.call("cuModuleLoadData", KEEPING_PTX.encode() + b"\0")
    kept, _ = driver.call("cuModuleGetGlobal", module, b"kept")
    address = np.array([rig.tensors["state/shadow"].data_ptr()], np.uint64)
    driver.call("cuMemcpyHtoD", kept, address.ctypes.data, 8)
    bump = driver.call("cuModuleGetFunction", module, b"bump_kept")

    def launch() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        driver.call("cuLaunchKernel", bump, *[1] * 6, 0, stream, 0, 0)

    graph = capture(launch, rig.temporaries, rig.stream)
    found = {}
    for name, search in (("unsearched", False), ("searched", True)):
        try:
            export_graph(
                driver,
                Context(driver),
                graph.raw_cuda_graph(),
                rig.arena,
                registry,
                search_variables=search,
            )
            found[name] = "exported"
        except ValueError as error:
            found[name] = f"{type(error).__name__}: {error}"
    words = rig.tensors["state/shadow"].view(torch.int64).view(-1)
    words[5] = int(address[0])
    seen = scan(rig.arena, ["state/steps", "state/shadow"], rig.arena.layout)
    found["scanned"] = [[*place, word == int(address[0])] for place, word in seen.items()]
    registry.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
