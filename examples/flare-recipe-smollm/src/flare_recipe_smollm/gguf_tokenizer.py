"""The tokenizer in a GGUF file's metadata, as a `tokenizer.json`."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from flare.prepare import CheckpointError, GgufFile

_CONTROL = 3  # GGUF token type: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
_NORMAL = 1
_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def read_tokenizer(file: GgufFile) -> bytes:
    """Byte-level BPE over single digits, as SmolLM's own `tokenizer.json` has it.

    Bytes that are no token of the vocabulary (six control characters, and the two that start characters
    of the unassigned planes 4 to 11) produce nothing, as they do there.

    Raises: CheckpointError when the metadata describe another kind of tokenizer.
    """
    for key, expected in (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")):
        found = file.require(key)
        if found != expected:
            raise CheckpointError(f"{key} is {found}, this recipe reads {expected}", field=key)
    tokens = file.require("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.require("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in _control_tokens(file, tokens)]
    )
    return tokenizer.to_str().encode()


def read_special_tokens(file: GgufFile) -> dict[str, str]:
    """`bos_token`, `eos_token`, `unk_token` and `pad_token`, those that the file names."""
    tokens = file.require("tokenizer.ggml.tokens")
    keys = {name: f"tokenizer.ggml.{key}_token_id" for key, name in _SPECIAL.items()}
    return {name: tokens[file.metadata[key]] for name, key in keys.items() if key in file.metadata}


def _control_tokens(file: GgufFile, tokens: list[str]) -> list[str]:
    types = file.require("tokenizer.ggml.token_type")
    unknown = sorted(set(types) - {_NORMAL, _CONTROL})
    if unknown or len(types) != len(tokens):
        raise CheckpointError(f"token types {unknown} are not read here", field="tokenizer.ggml.token_type")
    return [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
