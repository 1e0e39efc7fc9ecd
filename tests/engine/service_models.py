"""Hash models for random service: together they have every page and group end close to every other bound."""

import json

from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape
from flare.testing.tiny_text import byte_level

VOCABULARY = 23
MODELS = [
    HashModel(context=40, page_tokens=4, pages=11, vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=4, pages=25, snapshot_rows=24, vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=4, snapshot_rows=12, vocab_size=VOCABULARY),
    HashModel(
        context=37,
        page_tokens=5,
        pages=20,
        snapshot_rows=40,
        prefill_tokens=(3, 7),
        vocab_size=VOCABULARY,
        shape=HashShape(group=5, overlap=0, window=1, taps=1, history=1),
    ),
    HashModel(context=40, page_tokens=16, concurrency=2, decode_lanes=(2,), vocab_size=VOCABULARY),
    HashModel(
        context=24,
        page_tokens=1,
        pages=50,
        prefill_tokens=(5,),
        vocab_size=VOCABULARY,
        shape=HashShape(group=1, overlap=3, window=9),
    ),
    HashModel(context=40, page_tokens=4, vocab_size=VOCABULARY, host_fed=True),
    HashModel(context=40, page_tokens=4, vocab_size=VOCABULARY, host_fed=True, shape=HashShape(table=409)),
    HashModel(
        context=40,
        page_tokens=4,
        pages=16,
        snapshot_rows=16,
        vocab_size=VOCABULARY,
        image_patches=(6, 12),
        image_features=18,
    ),
    HashModel(
        context=40,
        page_tokens=4,
        pages=16,
        snapshot_rows=16,
        vocab_size=VOCABULARY,
        resident=True,
        shape=HashShape(table=409),
    ),
]
LONG = [
    HashModel(
        context=160,
        page_tokens=64,
        pages=9,
        snapshot_rows=12,
        prefill_tokens=(16, 32),
        vocab_size=VOCABULARY,
        shape=HashShape(group=8, overlap=8, window=70, taps=4, history=5),
    ),
    HashModel(
        context=300,
        page_tokens=256,
        pages=7,
        snapshot_rows=8,
        prefill_tokens=(64,),
        vocab_size=VOCABULARY,
        shape=HashShape(group=128, overlap=0, window=16),
    ),
]


def speculative(
    *shapes: tuple[int, int, int, int],
    page_tokens: int = 4,
    pages: int | None = None,
    context: int = 40,
    **changes,
) -> HashModel:
    """A model with programs of (requests, depth, width, rows)."""
    return HashModel(
        context=context,
        page_tokens=page_tokens,
        pages=pages,
        vocab_size=VOCABULARY,
        speculative=shapes,
        **changes,
    )


SPECULATIVE = [
    speculative((4, 0, 1, 4), snapshot_rows=12),
    speculative((1, 1, 2, 2), (4, 1, 2, 8), host_proposals=True, pages=11),
    speculative(
        (4, 2, 3, 7),
        page_tokens=6,
        snapshot_rows=20,
        shape=HashShape(group=3, overlap=4, window=4, taps=2, history=5),
    ),
    speculative((2, 3, 4, 8), (4, 5, 4, 9), host_proposals=True, pages=14, snapshot_rows=24),
    speculative(
        (4, 4, 5, 20),
        page_tokens=1,
        pages=48,
        host_fed=True,
        agreement=230,
        shape=HashShape(group=1, overlap=3, window=9),
    ),
    speculative((1, 5, 6, 6), (4, 7, 6, 24), page_tokens=16, snapshot_rows=8, agreement=128),
    speculative(
        (4, 6, 7, 18), page_tokens=2, pages=26, host_proposals=True, host_fed=True, shape=HashShape(group=2)
    ),
    speculative(
        (1, 3, 4, 4),
        (4, 3, 4, 11),
        pages=17,
        snapshot_rows=9,
        host_proposals=True,
        host_fed=True,
        shape=HashShape(history=4, table=97),
        image_patches=(12,),
        image_features=12,
    ),
    speculative(
        (4, 0, 1, 4), (4, 3, 4, 16), (4, 7, 8, 32), page_tokens=8, pages=9, snapshot_rows=12, agreement=250
    ),
    speculative(
        (1, 2, 3, 3),
        (4, 3, 4, 13),
        pages=17,
        snapshot_rows=9,
        host_proposals=True,
        resident=True,
        shape=HashShape(history=4, table=97),
    ),
    speculative(
        (1, 7, 8, 8),
        (4, 7, 8, 20),
        context=160,
        page_tokens=64,
        pages=9,
        snapshot_rows=12,
        host_proposals=True,
        shape=HashShape(group=8, overlap=8, window=70, taps=4, history=5),
    ),
    speculative(
        (4, 7, 8, 32),
        context=300,
        page_tokens=256,
        pages=7,
        snapshot_rows=8,
        prefill_tokens=(64,),
        agreement=256,
        shape=HashShape(group=128, overlap=0, window=16),
    ),
]

# Tokens with texts, so that grammars can be followed: the first ends an output.
WORDS = ("<end>", *"abcdefgh", "aa", "ab", "ba", "bc", "abc", *' 12{}":,', "~")
assert len(WORDS) == VOCABULARY
TOKENIZER = byte_level(WORDS)
_OBJECT = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2, 12]}},
    "required": ["a"],
    "additionalProperties": False,
}
GRAMMARS = tuple(
    json.dumps({"grammars": [grammar]})
    for grammar in (
        {"lark_grammar": "start: /(abc|ba+){2,4}/"},
        {"lark_grammar": "start: /[a-h]*/"},
        {"lark_grammar": 'start: "abcabc" | "aab" | "b"'},
        {"lark_grammar": 'start: list\nlist: "{" (item ("," item)*)? "}"\nitem: /[ab]+/ | list'},
        {"json_schema": _OBJECT},
        {"lark_grammar": "start: /(a[bc]d[ef]){9,}/"},  # long, and nothing of it is like what comes next
    )
)
MASKED = [
    HashModel(context=40, page_tokens=4, pages=11, vocab_size=VOCABULARY, tokenizer=TOKENIZER),
    HashModel(context=40, page_tokens=4, snapshot_rows=24, vocab_size=VOCABULARY, tokenizer=TOKENIZER),
    HashModel(
        context=40,
        page_tokens=16,
        concurrency=2,
        decode_lanes=(2,),
        vocab_size=VOCABULARY,
        tokenizer=TOKENIZER,
    ),
    HashModel(context=40, page_tokens=4, vocab_size=VOCABULARY, host_fed=True, tokenizer=TOKENIZER),
    speculative((4, 3, 4, 11), pages=14, snapshot_rows=24, host_proposals=True, tokenizer=TOKENIZER),
    speculative(
        (1, 1, 2, 2), (4, 5, 6, 24), pages=12, host_proposals=True, host_fed=True, tokenizer=TOKENIZER
    ),
    speculative((4, 3, 4, 16), pages=13, snapshot_rows=12, agreement=250, tokenizer=TOKENIZER),
]
