"""The runtime core container: one safetensors file, written, read, inspected, verified.

`CoreWriter` streams tensors into a temporary file and seals it with a contract; `CoreReader` opens a
sealed file; `read_contract` parses its contract. The format is described in `docs/core-file.md`.
"""

from flare.corefile.contract import check_references, parse_contract, read_contract
from flare.corefile.inspection import RoleTotal, core_digest, overhead, totals
from flare.corefile.reader import CoreReader
from flare.corefile.store import Progress, TensorStore
from flare.corefile.tensor import Role, TensorSpec
from flare.corefile.writer import CoreWriter

__all__ = [
    "CoreReader",
    "CoreWriter",
    "Progress",
    "Role",
    "RoleTotal",
    "TensorSpec",
    "TensorStore",
    "check_references",
    "core_digest",
    "overhead",
    "parse_contract",
    "read_contract",
    "totals",
]
