"""Turns and side requests of a session, and what goes first for whose sake."""

from __future__ import annotations

from test_tree import make_tree, publish, whole

from flare.cache import ORDINARY, Conversations, PrefixIdentity, Standing
from flare.cache.standing import Turn

BIG = list(range(100, 500))
SMALL = list(range(20))


class Client:
    """One session, asked for standings by tokens."""

    def __init__(self, conversations: Conversations, name: str = "s", salt: str = "") -> None:
        self._conversations, self._name, self._salt = conversations, name, salt

    def __call__(self, tokens: list[int], header: int = 0) -> Standing:
        identity = PrefixIdentity(self._salt.encode(), tokens)
        return self._conversations.standing(self._name, self._salt, identity, len(tokens) - header)


def test_a_small_request_beside_a_big_one_is_a_side_request() -> None:
    ask = Client(Conversations())
    assert not ask(BIG).side
    assert ask(SMALL).side
    assert ask(SMALL).side  # the same once more
    assert ask([7, *SMALL]).side
    assert not ask([9] * 101).side  # more than a quarter
    assert ask([9] * 100).turn is None


def test_a_turn_that_goes_on_takes_the_last_ones_place() -> None:
    ask = Client(Conversations())
    first = ask([*BIG, 1, 2], header=2).turn
    assert first is not None
    assert ask([*BIG, 1, 2], header=2).turn is first  # asked again
    second = ask([*BIG, 7, 7, 1, 2], header=2).turn  # what followed the last message is another text
    assert second is not None
    assert (first.last, second.last) == (False, True)


def test_a_side_request_that_is_continued_was_a_conversation() -> None:
    ask = Client(Conversations())
    big = ask(BIG).turn
    assert ask(SMALL).side
    turn = ask([*SMALL, 1]).turn
    assert turn is not None
    assert ask([*SMALL, 1, 2]).turn is not turn
    assert not turn.last
    assert big is not None
    assert big.last


def test_other_sessions_salts_and_requests_without_a_session_are_ordinary() -> None:
    conversations = Conversations()
    Client(conversations)(BIG)
    assert not Client(conversations, "other")(SMALL).side
    assert not Client(conversations, "s", "salt")(SMALL).side
    assert Client(conversations, "")(SMALL) is ORDINARY
    assert Client(conversations)(SMALL).side


def test_what_is_remembered_is_bounded() -> None:
    conversations = Conversations()
    ask = Client(conversations)
    first = ask(BIG).turn
    for number in range(1000):
        assert ask([number]).side
        assert not Client(conversations, f"s{number}")(BIG).side
        ask(BIG[:1])
    assert len(conversations) == 256
    (session,) = (known for key, known in conversations._sessions.items() if key == ("", "s"))
    assert len(session.asides) <= 4
    for number in range(1000):
        assert not ask([number, *BIG]).side
    assert len(session.conversations) == 16
    assert first is not None
    assert not first.last  # forgotten, so not spared any more


def beside(turn: Turn) -> Standing:
    return Standing(side=True, session=turn.session)


def of(turn: Turn) -> Standing:
    return Standing(session=turn.session, turn=turn)


def test_side_checkpoints_go_first_of_either_order() -> None:
    tree = make_tree(pages=8, snapshots=3)
    turn = Turn(object())
    old = publish(tree, [1] * 8)
    big = publish(tree, [2] * 8, standing=of(turn))
    side = publish(tree, [3] * 8, standing=beside(turn))
    assert tree.make_room(3)
    assert side.removed
    side = publish(tree, [3] * 8, standing=beside(turn))
    tree.release(tree.reserve(aligned=True), 0)
    assert side.removed
    assert not old.removed
    assert not big.removed
    whole(tree, 8, 3)


def test_a_side_request_takes_from_others_first_and_from_its_conversation_last() -> None:
    tree = make_tree(pages=8, snapshots=8)
    turn, stranger = Turn(object()), Turn(object())
    big = publish(tree, [2] * 8, standing=of(turn))
    other = publish(tree, [1] * 8, standing=of(stranger))  # used later
    assert tree.make_room(6, beside(turn))
    assert other.removed
    assert not big.removed
    assert tree.make_room(7, beside(turn))  # there is nothing else
    assert big.removed
    assert tree.pages.free == 8


def test_whoever_is_no_side_request_takes_what_was_used_least_lately() -> None:
    tree = make_tree(pages=8, snapshots=8)
    turn = Turn(object())
    big = publish(tree, [2] * 8, standing=of(turn))
    other = publish(tree, [1] * 8)
    assert tree.make_room(6, of(turn))
    assert big.removed
    assert not other.removed


def test_a_side_request_goes_without_a_checkpoint_rather_than_take_the_conversations() -> None:
    tree = make_tree(pages=64, snapshots=2)
    turn = Turn(object())
    inner = publish(tree, [2] * 5, standing=of(turn))
    end = publish(tree, [2] * 9, inner, standing=of(turn))
    assert tree.reserve(aligned=True, standing=beside(turn)) is None
    assert tree.counts.thinned == 0
    turn.last = False  # the next turn ended: what is inside the chain may be thinned
    assert tree.reserve(aligned=True, standing=beside(turn)) is not None
    assert inner.removed
    assert not end.removed


def test_rows_of_side_chains_are_thinned_before_their_ends_go() -> None:
    tree = make_tree(pages=64, snapshots=4)
    turn = Turn(object())
    big = publish(tree, [2] * 5, standing=of(turn))
    publish(tree, [2] * 9, big, standing=of(turn))
    inner = publish(tree, [3] * 5, standing=beside(turn))
    end = publish(tree, [3] * 90, inner, standing=beside(turn))
    tree.release(tree.reserve(aligned=True), 0)
    assert inner.removed
    publish(tree, [4] * 5, standing=beside(turn))
    tree.release(tree.reserve(aligned=True), 0)
    assert end.removed
    assert (tree.counts.thinned_for_rows, tree.counts.evicted_for_rows) == (1, 1)
    assert not big.removed


def test_a_checkpoint_that_others_continue_from_is_no_side_checkpoint() -> None:
    turn = Turn(object())
    for standing in (ORDINARY, of(turn)):
        tree = make_tree()
        inner = publish(tree, [3] * 5, standing=beside(turn))
        end = publish(tree, [3] * 9, inner, standing=beside(turn))
        tree.claim(end, beside(turn))
        assert end.side
        tree.claim(end, standing)
        assert not end.side
        assert not inner.side
        assert standing.turn in (None, end.turn)
    tree = make_tree()
    inner = publish(tree, [3] * 5, standing=beside(turn))
    publish(tree, [3] * 9, inner)
    assert not inner.side
    duplicate = publish(tree, [4] * 5, standing=beside(turn))
    storage = tree.reserve(aligned=False)
    assert storage is not None
    assert tree.publish(PrefixIdentity(b"", [4] * 5), 5, None, (), storage, 0, of(turn)) is None
    assert not duplicate.side
