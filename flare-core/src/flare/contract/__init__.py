"""What a core promises to the runtime: typed data only. Imports nothing else of flare."""

from flare.contract.base import ContractModel
from flare.contract.buffers import BufferSpec, BufferView, Initial, Region
from flare.contract.capacities import Capacities, SpeculativeShape
from flare.contract.completion import METADATA_FIELDS, FinishCode, Record, Status
from flare.contract.dtypes import DType
from flare.contract.frontend import Frontend, TemplateKind
from flare.contract.geometry import PageGeometry, RowGeometry, StateField, page_geometry, row_geometry
from flare.contract.identity import (
    FORMAT_VERSION,
    DrawnPosition,
    Identity,
    OperatorLibrary,
    Oracle,
    Provenance,
)
from flare.contract.images import ImageFit, ImageProfile
from flare.contract.oplist import Operator, OperatorList, Step
from flare.contract.output_format import (
    CallFormat,
    CallSyntax,
    Mark,
    OutputFormat,
    ReasoningFormat,
    TaggedArguments,
)
from flare.contract.prepared import PreparedContract
from flare.contract.programs import Payload, PendingTokens, Program, ProgramKind, TableUse
from flare.contract.sampling import DefaultSampling, Range, SamplingRanges
from flare.contract.schemes import (
    CacheScheme,
    ConvHistoryScheme,
    CounterScheme,
    GroupedScheme,
    PagedScheme,
    RecurrentScheme,
    SavedHiddenScheme,
    TokenHistoryScheme,
    WindowScheme,
)
from flare.contract.tables import TableResource
from flare.contract.values import CompletionBinding, CompletionField, ValueBinding, ValueSource

__all__ = [
    "FORMAT_VERSION",
    "METADATA_FIELDS",
    "BufferSpec",
    "BufferView",
    "CacheScheme",
    "CallFormat",
    "CallSyntax",
    "Capacities",
    "CompletionBinding",
    "CompletionField",
    "ContractModel",
    "ConvHistoryScheme",
    "CounterScheme",
    "DType",
    "DefaultSampling",
    "DrawnPosition",
    "FinishCode",
    "Frontend",
    "GroupedScheme",
    "Identity",
    "ImageFit",
    "ImageProfile",
    "Initial",
    "Mark",
    "Operator",
    "OperatorLibrary",
    "OperatorList",
    "Oracle",
    "OutputFormat",
    "PageGeometry",
    "PagedScheme",
    "Payload",
    "PendingTokens",
    "PreparedContract",
    "Program",
    "ProgramKind",
    "Provenance",
    "Range",
    "ReasoningFormat",
    "Record",
    "RecurrentScheme",
    "Region",
    "RowGeometry",
    "SamplingRanges",
    "SavedHiddenScheme",
    "SpeculativeShape",
    "StateField",
    "Status",
    "Step",
    "TableResource",
    "TableUse",
    "TaggedArguments",
    "TemplateKind",
    "TokenHistoryScheme",
    "ValueBinding",
    "ValueSource",
    "WindowScheme",
    "page_geometry",
    "row_geometry",
]
