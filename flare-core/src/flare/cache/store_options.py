"""Which stores of checkpoints a server keeps, as an operator chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flare.errors import CacheError

DEFAULT_DISK_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`host_bytes` of memory and `disk_bytes` of files below `disk_directory`; 0 and None are off.

    `disk_bytes` None is DEFAULT_DISK_BYTES. Raises CacheError for what makes no sense.
    """

    host_bytes: int = 0
    disk_directory: Path | None = None
    disk_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.host_bytes < 0:
            raise CacheError("the size of the host cache is negative", field="host_cache")
        if self.disk_bytes is not None:
            if self.disk_directory is None:
                raise CacheError(
                    "--disk-cache-size without --disk-cache: name the directory", field="disk_cache_size"
                )
            if self.disk_bytes <= 0:
                raise CacheError("the size of the disk cache must be positive", field="disk_cache_size")

    @property
    def enabled(self) -> bool:
        """Whether there is any store."""
        return self.host_bytes > 0 or self.disk_directory is not None
