"""Reading GGUF files: metadata and tensors under the names in the file, for a recipe to interpret.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, read with the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorInfo, known_tensor
from flare.prepare.source_path import stamped
from flare.recipes.source import LocalCheckpoint

if TYPE_CHECKING:
    import torch

PLAIN = ("F16", "F32", "F64", "I8", "I16", "I32", "I64")
"""Element types that the reader presents as arrays; every other type is a block format of bytes."""


class GgufFile:
    """An open GGUF file, mapped into memory.

    `revision` names the content as its source knows it, `metadata` maps keys to Python values. `tensors` has
    row-major shapes (the file lists the fastest dimension first) and GGML type names.

    Raises: CheckpointError when the `gguf` package is missing, or the file is damaged or foreign.
    """

    def __init__(self, checkpoint: Path | LocalCheckpoint) -> None:
        local = stamped(checkpoint)
        path = local.path
        try:
            import gguf
        except ImportError as error:
            raise CheckpointError('reading GGUF needs the gguf package: pip install "gguf>=0.17"') from error
        try:
            reader = gguf.GGUFReader(path, "c")
        except (ValueError, IndexError, KeyError, OverflowError, OSError) as error:
            raise CheckpointError(
                f"{path} is not a GGUF file, or is damaged: {error}", field="checkpoint"
            ) from error
        if reader.byte_order != "I":
            raise CheckpointError(f"{path} has the byte order of another machine", field="checkpoint")
        self.path = path
        self.revision = local.revision
        self.metadata: Mapping[str, Any] = _Metadata(reader.fields)
        self._stored = {tensor.name: tensor for tensor in reader.tensors}
        self.tensors: Mapping[str, TensorInfo] = {
            tensor.name: TensorInfo(
                tensor.name, tuple(map(int, reversed(tensor.shape))), tensor.tensor_type.name
            )
            for tensor in reader.tensors
        }

    def load(self, name: str) -> torch.Tensor:
        """One tensor: plain formats mapped in their own type, block formats dequantized to float32.

        Raises: CheckpointError for an unknown name, or a format that `gguf` cannot dequantize.
        """
        import torch

        info = known_tensor(self.tensors, name)
        data = self._stored[name].data
        if info.dtype in PLAIN:
            return torch.from_numpy(data).reshape(info.shape)
        if info.dtype == "BF16":
            return torch.from_numpy(data).view(torch.bfloat16).reshape(info.shape)
        from gguf.quants import dequantize

        try:
            values = dequantize(data, self._stored[name].tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{name} is stored as {info.dtype}, which cannot be read", field=name
            ) from error
        return torch.from_numpy(values).reshape(info.shape)

    def require(self, key: str) -> Any:
        """A metadata value. Raises CheckpointError naming the key when the file lacks it."""
        if key not in self.metadata:
            raise CheckpointError(f"{self.path.name} lacks the metadata {key}", field=key)
        return self.metadata[key]


class _Metadata(Mapping[str, Any]):
    """Decodes a value when it is asked for: vocabularies are long and often not needed."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key].contents()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
