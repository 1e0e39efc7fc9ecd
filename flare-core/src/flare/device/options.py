"""What the person who serves a core chooses when it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from flare.errors import CapacityError

GPU_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a core is loaded.

    `threads`: compute threads of the CPU device; None takes all cores.
    `cache_tokens`: tokens that the pages hold, rounded up to whole pages; `snapshot_rows`: rows for saved
    state. None takes what was recorded at preparation (CPU), or as much as the memory has room for (GPU).
    `gpu_memory_utilization`: the part of the GPU's memory that this process may fill; None takes
    GPU_MEMORY_UTILIZATION. Not for other devices.

    Raises CapacityError for numbers that mean nothing.
    """

    threads: int | None = None
    cache_tokens: int | None = None
    snapshot_rows: int | None = None
    gpu_memory_utilization: float | None = None

    def __post_init__(self) -> None:
        if self.cache_tokens is not None and self.cache_tokens < 1:
            raise CapacityError("cache-tokens must be at least 1", field="cache_tokens")
        if self.snapshot_rows is not None and self.snapshot_rows < 0:
            raise CapacityError("snapshot-rows must not be negative", field="snapshot_rows")
        if self.gpu_memory_utilization is not None and not 0 < self.gpu_memory_utilization <= 1:
            raise CapacityError(
                "gpu-memory-utilization is a part of the memory, above 0 and at most 1",
                field="gpu_memory_utilization",
            )

    def refuse_gpu_choices(self, device: str) -> None:
        """Raise CapacityError when something was chosen that `device`, which is no GPU, does not have."""
        if self.gpu_memory_utilization is not None:
            raise CapacityError(
                f"gpu-memory-utilization is for GPUs, this core is for {device!r}: choose cache-tokens",
                field="gpu_memory_utilization",
            )
