"""Whether a core is for this machine, and whether its results must be the recorded ones to the token."""

from __future__ import annotations

from collections.abc import Iterator

from flare.contract import Identity, PreparedContract
from flare.device import arithmetic_conditions, check_device
from flare.device.library import check_library, installed


def conditions(contract: PreparedContract) -> dict[str, str]:
    """`flare.device.arithmetic_conditions` of the core's device kind, with the version of its operators."""
    found = arithmetic_conditions(contract.identity.device)
    library = contract.identity.operator_library
    if library is not None:
        found[library.distribution] = installed(library.distribution) or "not installed"
    return found


def check_identity(identity: Identity) -> None:
    """Raise CoreError when the core cannot run on this installation, naming the field."""
    check_device(identity.device)
    if identity.operator_library is not None:
        check_library(identity.operator_library)


def differing(contract: PreparedContract, here: dict[str, str]) -> Iterator[str]:
    """What is not as it was when the oracle was recorded, one short phrase each."""
    recorded = {} if contract.provenance.oracle is None else contract.provenance.oracle.conditions
    if contract.identity.instruction_set is not None:
        recorded = {**recorded, "instruction set": contract.identity.instruction_set}
    for name in sorted(recorded):
        if here.get(name) != recorded[name]:
            yield f"{name} {here.get(name, 'unknown')}, prepared with {recorded[name]}"
