"""What is measured on a GPU: geometries with random weights, so that nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass

_SMALL = (
    "random://llama?layers=30&hidden=576&heads=9&kv_heads=3&ffn=1536&vocab=49152"
    "&context=8192&rms_norm_eps=1e-5&tie_word_embeddings=true&seed=1"
)
_3B = (
    "random://llama?layers=28&hidden=3072&heads=24&kv_heads=8&ffn=8192&vocab=128256"
    "&context={context}&rms_norm_eps=1e-5&tie_word_embeddings=true&seed=1"
)
LONG_CONTEXT = 73_728  # 64K tokens of prompt are not more than nine tenths of it


@dataclass(frozen=True)
class Model:
    """`name` of its files; `label` for readers; where the weights come from; what preparation is told."""

    name: str
    label: str
    checkpoint: str
    context: int
    prefill_chunk_size: int


MODELS = {
    model.name: model
    for model in (
        Model("135m", "SmolLM2-135M geometry, BF16", _SMALL, 8192, 4096),
        Model("3b", "Llama-3.2-3B geometry, BF16", _3B.format(context=8192), 8192, 4096),
        Model(
            "3b-long",
            "Llama-3.2-3B geometry, BF16, context 72K, chunks to 4096",
            _3B.format(context=LONG_CONTEXT),
            LONG_CONTEXT,
            4096,
        ),
        Model(
            "3b-long-512",
            "Llama-3.2-3B geometry, BF16, context 72K, chunks to 512",
            _3B.format(context=LONG_CONTEXT),
            LONG_CONTEXT,
            512,
        ),
    )
}
