"""Program composition: complete prefill, decode, resume and state programs around a model's forward."""

from flare_components.serving.batch import Batch, Forward, ImageEncoder, ModelState
from flare_components.serving.compose import compose
from flare_components.serving.ngram_hash import NgramHash

__all__ = ["Batch", "Forward", "ImageEncoder", "ModelState", "NgramHash", "compose"]
