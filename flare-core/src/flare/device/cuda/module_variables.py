"""Variables of kernels' modules in the preparing process: an address in one is missing in a core.

A library may set a `__device__` variable once from the host, before the capture. Kernel images are loaded
afresh by a process that serves, and their variables have the values of the image again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from flare.device.base import Bytes
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.driver import Driver
from flare.device.cuda.elf import variables
from flare.device.cuda.layout import ArenaLayout

_WORD = 8


def check_variables(
    driver: Driver, functions: Mapping[str, int], images: Mapping[str, bytes], layout: ArenaLayout
) -> None:
    """Raise GraphExportError for an address of `layout` in a variable of one of the images (by digest) that
    `functions` come from: a CUfunction by digest."""
    for image, function in functions.items():
        for name, at, word in addresses_in_variables(driver, function, images[image], layout):
            raise GraphExportError(
                f"variable {name} of kernel image {image[:12]} holds the address {word:#x} at byte {at}: a "
                "process that serves loads the image anew and will not have it; pass addresses as parameters",
                field=f"cubin/{image}",
            )


def addresses_in_variables(
    driver: Driver, function: int, image: bytes, layout: ArenaLayout
) -> Iterator[tuple[str, int, int]]:
    """Name, byte offset and word of every address of `layout` in the module of CUfunction `function`, which
    was loaded from `image`. Variables that the driver does not give out are not looked at."""
    status, module = driver.probe("cuFuncGetModule", driver.types.CUfunction(function))
    for name, nbytes in {} if status else variables(image).items():
        if nbytes < _WORD:
            continue
        status, found = driver.probe("cuModuleGetGlobal", module, name.encode())
        if status:
            continue
        words = _read(driver, int(found[0]), nbytes).view(np.uint64)
        for index in np.flatnonzero((words >= layout.base) & (words < layout.base + layout.nbytes)):
            yield name, int(index) * _WORD, int(words[index])


def _read(driver: Driver, address: int, nbytes: int) -> Bytes:
    data = np.empty(nbytes // _WORD * _WORD, np.uint8)
    driver.call("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)
    return data
