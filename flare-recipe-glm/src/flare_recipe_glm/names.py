"""What a checkpoint calls the tensors of a layer: by published names, or by those of Transformers."""

from __future__ import annotations

from collections.abc import Mapping

from flare.prepare import TensorInfo

# Published names, and what Transformers makes of them.
CONVERTED = {
    "hc_attn_fn": "attn_hc.fn",
    "hc_attn_base": "attn_hc.base",
    "hc_attn_scale": "attn_hc.scale",
    "hc_ffn_fn": "ffn_hc.fn",
    "hc_ffn_base": "ffn_hc.base",
    "hc_ffn_scale": "ffn_hc.scale",
    "self_attn.f_a_proj": "self_attn.forget_gate.f_a_proj",
    "self_attn.f_b_proj": "self_attn.forget_gate.f_b_proj",
    "self_attn.dt_bias": "self_attn.forget_gate.dt_bias",
    "self_attn.A_log": "self_attn.forget_gate.A_log",
}
CONVOLUTIONS = tuple(f"self_attn.{part}_conv1d.weight" for part in "qkv")
JOINED_CONVOLUTION = "self_attn.conv1d.weight"
"""The rows of the three, one after the other."""


class LayerNames:
    """The names of layer `prefix` ("model.language_model.layers.3") in a checkpoint that has `tensors`."""

    def __init__(self, prefix: str, tensors: Mapping[str, TensorInfo]) -> None:
        self.prefix, self._tensors = prefix, tensors

    def module(self, name: str) -> str:
        """The module that was published as `name`."""
        return self._found(name, ".weight")

    def tensor(self, name: str) -> str:
        """The tensor that was published as `name`."""
        return self._found(name, "")

    def convolutions(self) -> tuple[str, ...]:
        """The tensors of the convolution's rows, in their order."""
        joined = f"{self.prefix}.{JOINED_CONVOLUTION}"
        return (
            (joined,) if joined in self._tensors else tuple(f"{self.prefix}.{name}" for name in CONVOLUTIONS)
        )

    def _found(self, name: str, ending: str) -> str:
        """A checkpoint that has neither is said to lack the published one."""
        converted = f"{self.prefix}.{CONVERTED.get(name, name)}"
        return converted if converted + ending in self._tensors else f"{self.prefix}.{name}"
