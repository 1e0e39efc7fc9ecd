"""How rows of tables reach programs, which whoever prepares a core chooses."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from flare.errors import CapacityError

if TYPE_CHECKING:
    from flare.prepare.definition import ProgramSet


class TableDelivery(StrEnum):
    """Either the `host` looks rows up and uploads them, so that it must know every token first; or programs
    on the `device` compute row numbers from their tokens and read the table themselves, so that a step can be
    submitted before the one ahead has ended."""

    HOST = "host"
    DEVICE = "device"


def check_delivery(programs: ProgramSet, chosen: TableDelivery) -> None:
    """Raise CapacityError where tables are to be read on the device, and there are none or the host delivers
    rows."""
    if chosen is TableDelivery.HOST:
        return
    if not programs.tables:
        raise CapacityError("this model has no tables to read on the device", field="tables")
    uses = [use for program in programs.programs for use in program.tables]
    if not uses or any(use.delivery != "resident" for use in uses):
        raise CapacityError("programs of this recipe take rows of tables from the host only", field="tables")
