"""Addresses that are no parameters are found in real modules and memory."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from processes import run

from flare.device.cuda.driver import CudaDriver

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found(gpu: CudaDriver) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run("kept_addresses.py").splitlines()[-1])
    return said


def test_in_a_variable_of_a_module(found: dict[str, Any]) -> None:
    assert found["unsearched"] == "exported"
    message = "GraphExportError: variable kept of kernel image .* holds the address 0x.* at byte 0"
    assert re.match(message, found["searched"])


def test_in_memory(found: dict[str, Any]) -> None:
    assert found["scanned"] == [["state/shadow", 40, True]]
