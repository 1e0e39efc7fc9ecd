"""Layout of a completion record: 16 metadata integers, then C token ids, per lane (i32)."""

from __future__ import annotations

from enum import IntEnum

METADATA_FIELDS = 16


class Record(IntEnum):
    """Index of a metadata field. Fields 8 to 15 are reserved and zero."""

    STATUS = 0
    SLOT = 1
    EPOCH = 2
    TOKENS = 3  # tokens in this record
    FINISHED = 4
    CONSUMED = 5  # tokens the slot has consumed
    GENERATED = 6  # tokens drawn for the request
    COUNTER = 7  # low 32 bits of the Philox counter


class Status(IntEnum):
    """`Record.STATUS`. INVALID: the logits were not finite, nothing was drawn or committed."""

    PADDING = 0
    OK = 1
    INVALID = 2


class FinishCode(IntEnum):
    """`Record.FINISHED`: why the device stopped this slot."""

    LIVE = 0
    STOP_TOKEN = 1
    LENGTH = 2
