"""Whose state a store holds: state of one core is meaningless to every other."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass

from flare.contract import PreparedContract


@dataclass(frozen=True, slots=True)
class CoreState:
    """The state blocks of one core. `identity` (64 hex digits) covers everything that gives their bytes a
    meaning: content, fingerprint, device, ranks, byte order and layout."""

    identity: str
    page_tokens: int
    page_bytes: int
    row_bytes: int


def core_state(contract: PreparedContract, content: str) -> CoreState:
    """The state blocks of the core with `contract`. `content` names what is in the file besides: two cores
    that differ in a weight must not share state, even if everything else about them is the same."""
    parts = {
        "content": content,
        "fingerprint": contract.identity.fingerprint,
        "device": contract.identity.device,
        "world_size": contract.identity.world_size,
        "byte_order": sys.byteorder,
        "schemes": [scheme.model_dump(mode="json") for scheme in contract.schemes],
        "page": contract.page.model_dump(mode="json"),
        "row": contract.row.model_dump(mode="json"),
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return CoreState(digest, contract.page.page_tokens, contract.page.nbytes, contract.row.nbytes)
