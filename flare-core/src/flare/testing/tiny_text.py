"""A small byte-level tokenizer and a chat template, for tests that need text and no checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from flare.contract import DefaultSampling, Frontend, Range, SamplingRanges, TemplateKind
from flare.frontend import FrontendAssets

START, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_CORPUS = (
    "The quick brown fox jumps over the lazy dog. A server answers one question after another. "
    "def main(): return [token for token in tokens if token is not None] # numbers 0 1 2 3 4 5 6 7 8 9 "
    "système français: été, garçon; Übergrößenträger; пример текста; 日本語のテキスト; emoji 🙂🚀"
)


@cache
def tiny_tokenizer() -> tokenizers.Tokenizer:
    """Byte-level BPE with some 400 tokens; every byte has a token, so any text can be encoded. Token 0 ends a
    text, 1 and 2 start and end a chat message."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[TEXT_END, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([_CORPUS] * 4, trainer)
    return backend


def byte_level(words: Sequence[str]) -> str:
    """A `tokenizer.json` whose tokens are `words`, the first of them a special token. Two words that make
    another are joined where they stand in a text."""
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [words[0], *(spelled.pre_tokenize_str(word)[0][0] for word in words[1:])]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    cuts = [(piece[:cut], piece[cut:]) for piece in pieces[1:] for cut in range(1, len(piece))]
    merges = [pair for pair in cuts if vocabulary.keys() >= set(pair)]
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = spelled
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(words[0], special=True)])
    return str(backend.to_str())


def tiny_assets(template: str | None = CHAT_TEMPLATE, ranges: SamplingRanges | None = None) -> FrontendAssets:
    """A frontend on `tiny_tokenizer`. Without a `template` it serves completions only. Sampling defaults are
    the neutral ones; `ranges` are wide unless given."""
    backend = tiny_tokenizer()
    wide = SamplingRanges(
        temperature=Range(low=0.01, high=2.0),
        top_k=Range(low=0, high=1000),
        top_p=Range(low=0.01, high=1.0),
        min_p=Range(low=0.0, high=1.0),
        repetition_penalty=Range(low=0.5, high=2.0),
        presence_penalty=Range(low=-2.0, high=2.0),
        frequency_penalty=Range(low=-2.0, high=2.0),
    )
    frontend = Frontend(
        vocab_size=backend.get_vocab_size(),
        tokenizer_asset="tokenizer",
        template_kind=TemplateKind.JINJA if template is not None else TemplateKind.NONE,
        template_asset="template" if template is not None else None,
        special_tokens={"bos_token": START, "eos_token": END},
        eos_token_ids=(0, 2),
        default_sampling=DefaultSampling(
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            ranges=ranges or wide,
            source="none: a test",
            date="2026-01-01",
        ),
    )
    return FrontendAssets(frontend, backend.to_str().encode(), template)
