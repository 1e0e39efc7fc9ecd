"""`PreparedContract`: everything a core promises, validated as a whole."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field, field_validator, model_validator

from flare.contract.base import ContractModel
from flare.contract.buffers import BufferSpec, BufferView, Region
from flare.contract.capacities import Capacities
from flare.contract.frontend import Frontend
from flare.contract.geometry import PageGeometry, RowGeometry, page_geometry, row_geometry
from flare.contract.identity import FORMAT_VERSION, Identity, Provenance
from flare.contract.programs import Program, ProgramKind
from flare.contract.schemes import CacheScheme
from flare.contract.table_rows import check_resident_tables, check_table_rows
from flare.contract.tables import TableResource

REQUIRED_KINDS = (ProgramKind.START, ProgramKind.PREFILL, ProgramKind.DECODE)


class PreparedContract(ContractModel):
    """The typed promise of a core. See the modules of this package for each part."""

    identity: Identity
    provenance: Provenance
    capacities: Capacities
    schemes: tuple[CacheScheme, ...] = Field(min_length=1)
    page: PageGeometry
    row: RowGeometry
    buffers: tuple[BufferSpec, ...]
    programs: tuple[Program, ...]
    tables: tuple[TableResource, ...] = ()
    frontend: Frontend

    @field_validator("identity")
    @classmethod
    def _known_format(cls, identity: Identity) -> Identity:
        if identity.format_version > FORMAT_VERSION:
            raise ValueError(
                f"core format {identity.format_version} is newer than this engine reads ({FORMAT_VERSION})"
            )
        return identity

    @model_validator(mode="after")
    def _geometry_follows_schemes(self) -> PreparedContract:
        if page_geometry(self.schemes, self.page.page_tokens) != self.page:
            raise ValueError("page geometry does not follow from the cache schemes")
        if row_geometry(self.schemes) != self.row:
            raise ValueError("row geometry does not follow from the cache schemes")
        if self.capacities.pages < self.pages_per_request + 1:
            raise ValueError(
                f"{self.capacities.pages} pages (one is reserved) cannot hold a context of "
                f"{self.capacities.context} tokens in pages of {self.page.page_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _buffers_fit(self) -> PreparedContract:
        names = [(buffer.rank, buffer.name) for buffer in self.buffers]
        if len(set(names)) != len(names):
            raise ValueError("buffer names are not unique")
        for region, block, count in (
            (Region.PAGES, self.page.nbytes, self.capacities.addressable_pages),
            (Region.ROWS, self.row.nbytes, self.capacities.addressable_rows),
        ):
            have = sum(b.nbytes for b in self.buffers if b.region is region and b.rank == 0)
            if have != block * count:
                raise ValueError(f"region {region.value}: {have} bytes for {count} blocks of {block}")
        spans: dict[tuple[int, Region], list[tuple[int, int, str]]] = {}
        for buffer in self.buffers:
            span = (buffer.offset, buffer.offset + buffer.nbytes, buffer.name)
            spans.setdefault((buffer.rank, buffer.region), []).append(span)
        for region_spans in spans.values():
            region_spans.sort()
            for (_, end, first), (start, _, second) in pairwise(region_spans):
                if start < end:
                    raise ValueError(f"buffers {first} and {second} overlap")
        return self

    @model_validator(mode="after")
    def _programs_closed(self) -> PreparedContract:
        names = [program.name for program in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("program names are not unique")
        by_name = {buffer.name: buffer for buffer in self.buffers if buffer.rank == 0}
        tables = {table.name for table in self.tables}
        for program in self.programs:
            for binding in program.bindings:
                self._check_view(program.name, binding.view, by_name, Region.UPLOAD)
            for report in program.completion:
                self._check_view(program.name, report.view, by_name, Region.COMPLETION)
            for name in (*program.reads, *program.writes):
                if name not in by_name:
                    raise ValueError(f"program {program.name}: unknown buffer {name!r}")
            if unknown := {use.table for use in program.tables} - tables:
                raise ValueError(f"program {program.name}: unknown tables {sorted(unknown)}")
            check_table_rows(program)
            check_resident_tables(program, self.tables, self.buffers)
            ranks = [payload.rank for payload in program.payloads]
            if ranks != list(range(self.identity.world_size)):
                raise ValueError(f"program {program.name}: payloads for ranks {ranks}")
        kinds = {program.kind for program in self.programs}
        if missing := [kind.value for kind in REQUIRED_KINDS if kind not in kinds]:
            raise ValueError(f"no program of kind {', '.join(missing)}")
        for kind, sizes in (
            (ProgramKind.DECODE, self.capacities.decode_lanes),
            (ProgramKind.PREFILL, self.capacities.prefill_tokens),
            (ProgramKind.VISION, self.capacities.image_patches),
        ):
            have = sorted(program.tokens for program in self.programs if program.kind is kind)
            if have != list(sizes):
                raise ValueError(f"{kind.value} programs of sizes {have}, capacities declare {list(sizes)}")
        return self

    @model_validator(mode="after")
    def _speculation_fits(self) -> PreparedContract:
        capacities = self.capacities
        shapes = [program.speculation for program in self.of_kind(ProgramKind.SPECULATIVE)]
        declared = [shape.model_dump_json() for shape in capacities.speculative]
        if sorted(shape.model_dump_json() for shape in shapes if shape) != sorted(declared):
            raise ValueError("speculative programs are not of the shapes that capacities declare")
        most = max((shape.width for shape in capacities.speculative), default=1)
        for what in ("verification_width", "completion_tokens"):
            if most > getattr(capacities, what):
                raise ValueError(f"speculative width {most} exceeds {what} {getattr(capacities, what)}")
        return self

    @staticmethod
    def _check_view(program: str, view: BufferView, buffers: dict[str, BufferSpec], region: Region) -> None:
        buffer = buffers.get(view.buffer)
        if buffer is None:
            raise ValueError(f"program {program}: view of unknown buffer {view.buffer!r}")
        if buffer.region is not region or view.strides is not None:
            raise ValueError(
                f"program {program}: the view of {view.buffer!r} is not a dense window of the "
                f"{region.value} region"
            )
        if view.end > buffer.nbytes:
            raise ValueError(
                f"program {program}: view ends at {view.end} of {buffer.nbytes} in {view.buffer!r}"
            )

    @property
    def pages_per_request(self) -> int:
        """MP: pages that hold one context."""
        return -(-self.capacities.context // self.page.page_tokens)

    def of_kind(self, kind: ProgramKind) -> tuple[Program, ...]:
        """Programs of one kind, smallest first."""
        return tuple(
            sorted((p for p in self.programs if p.kind is kind), key=lambda p: (p.lanes, p.tokens, p.name))
        )
