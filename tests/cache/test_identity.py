"""Prefix identities: same tokens and conditioning, same key; anything else, another."""

from hypothesis import given
from hypothesis import strategies as st

from flare.cache import Conditioning, PrefixIdentity

TOKENS = st.lists(st.integers(0, 3), max_size=200)


@given(TOKENS, TOKENS)
def test_keys_are_equal_exactly_when_prefixes_are(a, b):
    one, other = PrefixIdentity(b"core", a), PrefixIdentity(b"core", b)
    for length in range(min(len(a), len(b)) + 1):
        assert (one.key(length) == other.key(length)) == (a[:length] == b[:length])


@given(TOKENS, st.lists(st.integers(1, 70), max_size=6))
def test_growing_in_pieces_changes_nothing(tokens, pieces):
    grown, done = PrefixIdentity(b"core"), 0
    for piece in pieces:
        grown.extend(tokens[done : done + piece])
        done = min(done + piece, len(tokens))
    grown.extend(tokens[done:])
    whole = PrefixIdentity(b"core", tokens)
    assert [grown.key(n) for n in range(len(tokens) + 1)] == [whole.key(n) for n in range(len(tokens) + 1)]


def test_roots_separate():
    assert PrefixIdentity(b"a", [1, 2]).key(2) != PrefixIdentity(b"b", [1, 2]).key(2)
    assert PrefixIdentity(b"a").key(0) != PrefixIdentity(b"b").key(0)


def test_conditioning_counts_from_where_it_enters():
    tokens = list(range(200))
    plain = PrefixIdentity(b"core", tokens)
    image = PrefixIdentity(b"core", tokens, [Conditioning(100, b"cat")])
    other = PrefixIdentity(b"core", tokens, [Conditioning(100, b"dog")])
    later = PrefixIdentity(b"core", tokens, [Conditioning(101, b"cat")])
    for length in range(201):
        same = length <= 100
        assert (plain.key(length) == image.key(length)) == same
        assert (image.key(length) == other.key(length)) == same
        assert (image.key(length) == later.key(length)) == same


def test_a_second_image_leaves_the_first_prefix_alone():
    tokens = list(range(200))
    one = PrefixIdentity(b"core", tokens, [Conditioning(10, b"cat")])
    two = PrefixIdentity(b"core", tokens, [Conditioning(150, b"dog"), Conditioning(10, b"cat")])
    assert one.key(150) == two.key(150)
    assert one.key(151) != two.key(151)
