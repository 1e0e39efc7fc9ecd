"""What a program that is given rows of a table must leave to the host, and one that reads them must have."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract.buffers import BufferSpec, Region
from flare.contract.programs import PendingTokens, Program, ProgramKind
from flare.contract.tables import TableResource
from flare.contract.values import ValueSource


def check_table_rows(program: Program) -> None:
    """Raise ValueError unless the rows that are uploaded are those of tables with host delivery, and the host
    knows all tokens they belong to: the pending one, and the proposals of a speculative program."""
    bound = [binding for binding in program.bindings if binding.source is ValueSource.TABLE_ROWS]
    delivered = {use.table for use in program.tables if use.delivery == "host_rows"}
    names = [binding.table for binding in bound]
    if len(set(names)) != len(names) or set(names) != delivered:
        raise ValueError(
            f"program {program.name}: rows of tables {names} are uploaded, {sorted(delivered)} are declared"
        )
    if any(binding.table is not None for binding in program.bindings if binding not in bound):
        raise ValueError(f"program {program.name}: only {ValueSource.TABLE_ROWS.value} is of a table")
    if not delivered or program.kind not in (ProgramKind.DECODE, ProgramKind.SPECULATIVE):
        return
    if program.pending is not PendingTokens.HOST:
        raise ValueError(f"program {program.name}: rows from the host need pending tokens from the host")
    drafts = program.speculation is not None and program.speculation.depth > 0
    if drafts and all(binding.source is not ValueSource.HOST_PROPOSALS for binding in program.bindings):
        raise ValueError(f"program {program.name}: rows from the host need proposals from the host")


def check_resident_tables(
    program: Program, tables: Sequence[TableResource], buffers: Sequence[BufferSpec]
) -> None:
    """Raise ValueError unless every table that the program reads itself is a buffer of every rank."""
    resident = {use.table for use in program.tables if use.delivery == "resident"}
    if not resident:
        return
    placed = [buffer for buffer in buffers if buffer.region is Region.TABLE_ROWS]
    ranks = {buffer.rank for buffer in buffers}
    for table in tables:
        if table.name not in resident:
            continue
        nbytes = table.rows * table.row_bytes
        holders = [buffer for buffer in placed if (buffer.tensor, buffer.nbytes) == (table.tensor, nbytes)]
        if {buffer.rank for buffer in holders} != ranks:
            raise ValueError(f"program {program.name}: table {table.name} is resident, but no buffer has it")
