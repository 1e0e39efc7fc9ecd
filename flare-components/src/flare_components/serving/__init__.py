"""Program composition: complete prefill, decode, resume and state programs around a model's forward."""

from flare_components.serving.batch import Batch, Forward, ModelState
from flare_components.serving.compose import compose

__all__ = ["Batch", "Forward", "ModelState", "compose"]
