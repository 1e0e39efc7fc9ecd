"""A tokenizer for random weights: text is bytes, and every further id stands for a few bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from flare.errors import CheckpointError

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(vocab_size: int) -> bytes:
    """A `tokenizer.json` with exactly `vocab_size` ids: special tokens, single bytes, then strings of bytes
    that text is never split into but that a drawn id decodes to. Raises CheckpointError when too small."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIAL) + len(alphabet)
    if vocab_size < least:
        raise CheckpointError(f"a vocabulary of {vocab_size}: at least {least} is needed", field="vocab_size")
    words = itertools.chain(SPECIAL, alphabet, _strings(alphabet))
    vocabulary = {word: index for index, word in enumerate(itertools.islice(words, vocab_size))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer.to_str().encode()


def _strings(alphabet: list[str]) -> Iterator[str]:
    for length in itertools.count(2):
        yield from map("".join, itertools.product(alphabet, repeat=length))
