"""The checkpoint tree: lookup, ownership, thinning and eviction, and what each costs."""

import random
import time
from statistics import median

import pytest

from flare.cache import ORDINARY, Checkpoint, CheckpointTree, PagePool, PrefixIdentity, RowPool, Standing
from flare.contract import Capacities

PAGE = 4


def make_tree(pages: int = 64, snapshots: int = 16) -> CheckpointTree:
    capacities = Capacities(
        concurrency=1,
        context=1 << 20,
        pages=pages + 1,
        snapshot_rows=snapshots,
        decode_lanes=(1,),
        prefill_tokens=(4,),
        stop_token_ids=1,
        logit_bias=0,
        logprobs=0,
    )
    return CheckpointTree(PagePool(pages + 1, PAGE), RowPool(capacities))


def publish(
    tree: CheckpointTree,
    tokens: list[int],
    parent: Checkpoint | None = None,
    frame: int = 0,
    standing: Standing = ORDINARY,
) -> Checkpoint:
    storage = tree.reserve(aligned=len(tokens) % PAGE == 0)
    assert storage is not None
    held = 0 if parent is None else parent.tokens // PAGE
    count = len(tokens) // PAGE - held
    assert tree.make_room(count)
    pages = tree.pages.allocate(count)
    found = tree.publish(PrefixIdentity(b"", tokens), len(tokens), parent, pages, storage, frame, standing)
    assert found is not None
    return found


def find(tree: CheckpointTree, tokens: list[int]) -> Checkpoint | None:
    return tree.find(PrefixIdentity(b"", tokens), len(tokens))


def whole(tree: CheckpointTree, pages: int, rows: int) -> None:
    """Every block is free or held by exactly one checkpoint."""
    held = [page for node in tree for page in node.pages]
    held += [node.storage.tail_page for node in tree if node.storage.tail_page is not None]
    assert len(set(held)) == len(held) == tree.held_pages
    assert tree.pages.free + tree.pages.fenced + tree.held_pages == pages
    assert tree.rows.free + tree.rows.fenced + len(tree) == rows
    assert tree.removable_pages == sum(
        node.held_pages if not node.holds else node.storage.tail_page is not None for node in tree
    )


@pytest.mark.parametrize("length", [1, 3, 4, 5, 63, 64, 65, 127, 128, 129])
def test_the_longest_prefix_is_found_at_any_length(length):
    tree = make_tree(pages=200)
    tokens = [n % 7 for n in range(140)]
    short = publish(tree, tokens[: max(length - 1, 1)]) if length > 1 else None
    exact = publish(tree, tokens[:length])
    assert find(tree, tokens) is exact
    assert find(tree, tokens[:length]) is exact
    assert find(tree, tokens[: length - 1]) is short
    assert find(tree, [*tokens[: length - 1], 9, 9, 9]) is short


def test_an_equal_endpoint_keeps_the_first_and_gives_the_storage_back():
    tree = make_tree()
    first = publish(tree, [1, 2, 3])
    storage = tree.reserve(aligned=False)
    assert tree.publish(PrefixIdentity(b"", [1, 2, 3]), 3, None, (), storage, 0) is None
    assert find(tree, [1, 2, 3]) is first
    assert tree.counts.duplicates == 1
    whole(tree, 64, 16)


def test_removing_an_ancestor_hands_its_pages_and_fence_to_its_child():
    tree = make_tree()
    a = publish(tree, [1] * 9, frame=7)
    b = publish(tree, [1] * 21, a)
    pages = b.chain()
    tree.remove(a)
    assert b.parent is None
    assert b.chain() == pages
    assert find(tree, [1] * 20) is None
    assert find(tree, [1] * 30) is b
    assert b.fence == 7
    whole(tree, 64, 16)
    tree.remove(b)
    assert tree.pages.fenced == 5 + 1 + 1  # both tail pages, and the chain
    tree.pages.retire(7)
    tree.rows.retire(7)
    assert tree.pages.free == 64
    whole(tree, 64, 16)


def test_a_removed_leaf_leaves_its_fence_to_its_parent():
    tree = make_tree()
    a = publish(tree, [1] * 8)
    b = publish(tree, [1] * 16, a, frame=5)
    tree.pin(b)
    tree.unpin(b, last_frame=9)
    tree.remove(b)
    assert a.fence == 9  # the same frame read the parent's pages
    tree.remove(a)
    assert tree.pages.free == 60
    tree.pages.retire(9)
    assert tree.pages.free == 64


def test_pins_keep_the_chain_but_not_the_snapshots_of_unpinned_ancestors():
    tree = make_tree(pages=6, snapshots=3)
    a = publish(tree, [1] * 8)
    b = publish(tree, [1] * 17, a)
    tree.pin(b)
    assert not tree.make_room(4)
    assert find(tree, [1] * 17) is b
    assert tree.reserve(aligned=True) is not None  # the third row
    assert tree.reserve(aligned=True) is not None  # a is thinned for it
    assert a.removed
    assert tree.reserve(aligned=True) is None  # b is pinned: the caller goes on without
    assert tree.counts.thinned_for_rows == 1


def test_rows_are_thinned_interior_first_where_the_interval_is_shortest():
    tree = make_tree(pages=400, snapshots=6)
    chain, parent = {}, None
    for length in (10, 100, 110, 130, 200):
        parent = chain[length] = publish(tree, [1] * length, parent)
    other = publish(tree, [2] * 10)
    removed = []
    for _ in range(6):
        before = set(tree)
        tree.release(tree.reserve(aligned=True), 0)
        removed += [node.tokens for node in before - set(tree)]
        tree.rows.allocate(1)  # keep the pressure up
    # 110 lies between 100 and 130; then 130 between 100 and 200 bounds less than 100 between 10 and 130. The
    # root comes after all interior ones, then the least recently used leaf.
    assert removed == [110, 130, 100, 10, 200, 10]
    assert other.removed
    assert all(node.removed for node in chain.values())


def test_pages_come_from_the_least_recently_used():
    tree = make_tree(pages=12)
    a, b, c = (publish(tree, [n] * 16) for n in (1, 2, 3))
    tree.pin(a)
    tree.unpin(a, 0)
    assert tree.make_room(4)
    assert (a.removed, b.removed, c.removed) == (False, True, False)
    assert tree.counts.evicted_for_pages == 1


def test_nothing_is_given_up_in_vain():
    tree = make_tree(pages=12)
    a, b = publish(tree, [1] * 16), publish(tree, [2] * 16)
    tree.pin(a)
    assert not tree.make_room(9)
    assert not b.removed
    assert tree.make_room(8)
    assert b.removed


def test_a_holder_can_take_a_checkpoint_over():
    tree = make_tree(pages=8)
    a = publish(tree, [1] * 8)
    b = publish(tree, [1] * 15, a)
    tree.pin(b)
    assert tree.absorb(b, last_frame=0) is a
    assert (a.pins, b.removed) == (1, True)
    assert tree.pages.free == 8 - 3  # two of a, one taken over; the tail page came back
    tree.pages.release(b.pages, 0)
    tree.unpin(a, 0)
    whole(tree, 8, 16)


def test_random_histories_stay_whole():
    for seed in range(60):
        rng = random.Random(seed)
        pages, rows = rng.choice([6, 12, 40]), rng.choice([1, 3, 9])
        tree, pinned = make_tree(pages, rows), []
        for _ in range(120):
            tokens = [rng.randrange(2) for _ in range(rng.choice([2, 5, 9, 16, 22]))]
            base = find(tree, tokens)
            kind = rng.random()
            if kind < 0.2 and base is not None:
                tree.pin(base)
                pinned.append(base)
            elif kind < 0.4 and pinned:
                tree.unpin(pinned.pop(rng.randrange(len(pinned))), 0)
            elif base is None or base.tokens < len(tokens):
                if base is not None:
                    tree.pin(base)
                storage = tree.reserve(aligned=len(tokens) % PAGE == 0)
                if storage is not None:
                    count = len(tokens) // PAGE - (base.tokens // PAGE if base else 0)
                    if tree.make_room(count):
                        new = tree.pages.allocate(count)
                        identity = PrefixIdentity(b"", tokens)
                        made = tree.publish(identity, len(tokens), base, new, storage, 0)
                        assert made is not None
                        assert tree.find(identity, len(tokens)) is made
                    else:
                        tree.release(storage, 0)
                if base is not None:
                    tree.unpin(base, 0)
            whole(tree, pages, rows)
        for node in pinned:
            tree.unpin(node, 0)
        tree.clear()
        assert (tree.pages.free, tree.rows.free, len(tree)) == (pages, rows, 0)


@pytest.mark.alone
def test_lookup_and_eviction_do_not_grow_with_the_number_of_checkpoints():
    """Medians of processor time, so that a busy machine does not matter; 10^5 within five times 10^2. Memory
    that the system just took away costs processor time, too: the best of three counts."""

    def costs(count: int) -> tuple[float, float]:
        tree = make_tree(pages=2 * count, snapshots=count)
        rng = random.Random(count)
        for number in range(count):
            publish(tree, [number, rng.randrange(1 << 20), 1, 2])
        prompts = [[rng.randrange(count), n, 1, 2] + [5] * 500 for n in range(64)]
        identities = [PrefixIdentity(b"", prompt) for prompt in prompts]
        looked, evicted = [], []
        for number in range(64):
            started = time.thread_time_ns()
            tree.find(identities[number], 504)
            looked.append(time.thread_time_ns() - started)
            started = time.thread_time_ns()
            publish(tree, [count + number, 0, 1, 2])
            evicted.append(time.thread_time_ns() - started)
        assert tree.counts.evicted_for_rows == 64
        return median(looked), median(evicted)

    def grows() -> bool:
        few, many = costs(100), costs(100_000)
        return any(late > 5 * early + 20_000 for early, late in zip(few, many, strict=True))

    assert not all(grows() for _ in range(3))
