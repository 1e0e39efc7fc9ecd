"""A core in memory: what a core file holds, without the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from flare.contract import PreparedContract


@dataclass(frozen=True, slots=True)
class CoreImage:
    """A contract and the tensors it names (payloads, weights, assets), as bytes. Devices load it in place
    of a core file reader; `flare.corefile` can write the same parts to a file."""

    contract: PreparedContract
    tensors: dict[str, bytes] = field(default_factory=dict)

    @property
    def contract_json(self) -> str:
        """The contract as typed JSON."""
        return self.contract.model_dump_json()

    def bytes(self, name: str) -> bytes:
        """Contents of a tensor. Raises KeyError for an unknown name."""
        return self.tensors[name]
