"""Text on one side, token ids on the other: tokenizer, templates, detokenizer, stop strings."""

from flare.frontend.assets import FrontendAssets
from flare.frontend.detokenizer import Detokenizer
from flare.frontend.errors import ContextLengthError, ImageAddressError, UnsupportedError
from flare.frontend.logit_bias import resolve_logit_bias
from flare.frontend.messages import normalize_messages
from flare.frontend.output import TextOutput
from flare.frontend.parts import PartedOutput
from flare.frontend.prompts import Prompt, Prompts
from flare.frontend.sampling import (
    SamplingParameters,
    SamplingPolicy,
    SamplingRequest,
    ZeroTemperature,
)
from flare.frontend.seeds import choice_seed
from flare.frontend.stop_strings import StopMatcher
from flare.frontend.template import ChatTemplate
from flare.frontend.token_bytes import TokenBytes
from flare.frontend.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "ContextLengthError",
    "Detokenizer",
    "FrontendAssets",
    "ImageAddressError",
    "PartedOutput",
    "Prompt",
    "Prompts",
    "SamplingParameters",
    "SamplingPolicy",
    "SamplingRequest",
    "StopMatcher",
    "TextOutput",
    "TokenBytes",
    "Tokenizer",
    "UnsupportedError",
    "ZeroTemperature",
    "choice_seed",
    "normalize_messages",
    "resolve_logit_bias",
]
