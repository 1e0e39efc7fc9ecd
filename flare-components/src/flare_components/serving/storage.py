"""All storage of a core except weights: request state, pages, rows, upload and completion windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flare.contract import BufferView, CompletionBinding, CompletionField, DType, Region, TableResource
from flare.contract.geometry import ALIGNMENT, BlockGeometry
from flare.contract.schemes import CacheScheme, GroupedScheme, SavedHiddenScheme
from flare.prepare import BufferLayout, ServingPlan, TableDelivery, Window
from flare_components.serving.batch import ImageEncoder
from flare_components.serving.request_state import place_request_state
from flare_components.serving.resident_tables import ResidentTables, place_tables
from flare_components.serving.uploads import UploadShape


@dataclass(frozen=True)
class Storage:
    """Views of everything a program may touch. `pages` and `rows` map a scheme to one view per layer;
    `page_blocks` and `row_blocks` are the same bytes as whole blocks u8[n, nbytes]. The host delivers rows of
    `tables`, programs read those of `resident`. `features` [F, width] are those of the images that `encoder`
    encodes."""

    request: dict[str, BufferView]
    pages: dict[str, tuple[BufferView, ...]]
    rows: dict[str, tuple[BufferView, ...]]
    page_blocks: BufferView
    row_blocks: BufferView
    saved_hidden: BufferView
    plan: ServingPlan
    tables: tuple[TableResource, ...] = ()
    resident: ResidentTables | None = None
    encoder: ImageEncoder | None = None
    features: BufferView | None = None

    def shape(self, lanes: int, tokens: int) -> UploadShape:
        """Upload dimensions of a program of this core."""
        pages, capacities = self.plan.pages_per_request, self.plan.capacities
        elements = 0 if self.encoder is None else self.encoder.patch_elements
        return UploadShape(lanes, tokens, pages, capacities, self.tables, elements, self.plan.vocab_size)

    def completion(self, lanes: int) -> tuple[CompletionBinding, ...]:
        """Completion fields of a sampling program with `lanes` lanes (C tokens, T alternatives)."""
        window = Window("completion")
        count, top = self.plan.capacities.completion_tokens, self.plan.capacities.logprobs
        shapes: list[tuple[CompletionField, DType, tuple[int, ...]]] = [
            (CompletionField.RECORDS, DType.I32, (lanes, 16 + count)),
            (CompletionField.LOGPROBS, DType.F32, (lanes, count)),
            (CompletionField.TOP_IDS, DType.I32, (lanes, count, top)),
            (CompletionField.TOP_LOGPROBS, DType.F32, (lanes, count, top)),
        ]
        return tuple(
            CompletionBinding(field=field, view=window.add(dtype, shape)) for field, dtype, shape in shapes
        )


def place_storage(
    layout: BufferLayout,
    plan: ServingPlan,
    tables: tuple[TableResource, ...] = (),
    encoder: ImageEncoder | None = None,
) -> Storage:
    """Place every non-weight buffer of a core. Raises CapacityError as `place_tables`."""
    capacities = plan.capacities
    page_count, row_count = capacities.addressable_pages, capacities.addressable_rows
    hosted = plan.tables is TableDelivery.HOST
    page_blocks = layout.add("pages", Region.PAGES, DType.U8, (page_count, plan.page.nbytes), role="pages")
    row_blocks = layout.add("rows", Region.ROWS, DType.U8, (row_count, plan.row.nbytes), role="rows")
    storage = Storage(
        request=place_request_state(
            layout, capacities, vocab_size=plan.vocab_size, pages_per_request=plan.pages_per_request
        ),
        pages=_views(plan.schemes, plan.page, "pages", page_count),
        rows=_views(plan.schemes, plan.row, "rows", row_count),
        page_blocks=page_blocks,
        row_blocks=row_blocks,
        saved_hidden=_saved_hidden(plan),
        plan=plan,
        tables=tables if hosted else (),
        resident=None if hosted else place_tables(layout, plan, tables),
        encoder=encoder,
        features=None if encoder is None else _place_features(layout, plan, encoder),
    )
    lanes = max(capacities.decode_lanes)
    uploads = storage.shape(lanes, max(capacities.prefill_tokens))
    patches = storage.shape(1, max(capacities.image_patches, default=0)).of_patches.values()
    # Every program packs its bindings from offset 0, so the window is as large as the largest sum.
    every = max(_window(uploads.everything), _window(patches))
    layout.add("upload", Region.UPLOAD, DType.U8, (every,), role="upload window")
    reports = max(binding.view.end for binding in storage.completion(lanes))
    layout.add("completion", Region.COMPLETION, DType.U8, (reports,), role="completion window")
    return storage


def _place_features(layout: BufferLayout, plan: ServingPlan, encoder: ImageEncoder) -> BufferView:
    shape = plan.capacities.image_features, encoder.width
    return layout.add("features", Region.IMAGE_FEATURES, plan.dtype, shape, role="image features")


def _window(bound: Iterable[tuple[DType, tuple[int, ...]]]) -> int:
    """Bytes of a window that holds them all."""
    window = Window("")
    for dtype, shape in bound:
        window.add(dtype, shape)
    return -(-window.nbytes // ALIGNMENT) * ALIGNMENT


def _views(
    schemes: Sequence[CacheScheme],
    geometry: BlockGeometry,
    buffer: str,
    blocks: int,
) -> dict[str, tuple[BufferView, ...]]:
    layers = {scheme.name: scheme.layers for scheme in schemes}
    layers |= {f"{s.name}.open": s.layers for s in schemes if isinstance(s, GroupedScheme)}
    return {
        field.name: tuple(
            geometry.view(buffer, field.name, blocks, layer) for layer in range(layers[field.name])
        )
        for field in geometry.fields
    }


def _saved_hidden(plan: ServingPlan) -> BufferView:
    saved = [scheme for scheme in plan.schemes if isinstance(scheme, SavedHiddenScheme)]
    if len(saved) != 1:
        raise ValueError(f"a served model declares one saved hidden vector, got {len(saved)}")
    return plan.row.view("rows", saved[0].name, plan.capacities.addressable_rows, 0)
