"""References for tests and for the prompt that a core records."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from flare.contract import DType
from flare.prepare import Checkpoint, serving_dtype


class LlamaOracle:
    """The oracle part of the recipe."""

    def reference(self, checkpoint: Checkpoint, dtype: DType) -> LlamaForCausalLM:
        """Transformers' model with this checkpoint's weights."""
        fields = {k: v for k, v in checkpoint.config.items() if k != "architectures"}
        config = LlamaConfig(**fields)
        config._attn_implementation = "eager"
        model = LlamaForCausalLM(config).eval()
        # Parameters only: rotary frequencies stay in float32, as from_pretrained leaves them.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(serving_dtype(dtype))
        state = {name: checkpoint.load(name) for name in checkpoint.tensors}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"lm_head.weight"}, missing
        model.tie_weights()
        return model

    def tiny_checkpoint(self, directory: Path, *, seed: int = 0) -> Path:
        """Two layers, 64 wide, 256 byte-level tokens and three special ones; written in the hub's format."""
        config = LlamaConfig(
            vocab_size=259,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
        )
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        tensors = {k: _spread(k, v) for k, v in model.state_dict().items() if k != "lm_head.weight"}
        directory.mkdir(parents=True, exist_ok=True)
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        fields = {**config.to_dict(), "architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}
        (directory / "config.json").write_text(json.dumps(fields, default=str))
        (directory / "tokenizer.json").write_bytes(_byte_tokenizer())
        (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}))
        return directory

    def prompt(self) -> str:
        """A prompt that the instruction-tuned model continues with a short factual answer."""
        return "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def _spread(name: str, tensor: torch.Tensor) -> torch.Tensor:
    # As initialised, norms are all ones and attention is nearly uniform: mistakes there would not show.
    if "norm" in name:
        return torch.rand_like(tensor) + 0.5
    return torch.randn_like(tensor) * 0.12


_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_tokenizer() -> bytes:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate((*special, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    return tokenizer.to_str().encode()
