"""Admission order: first come first served, bounded overtaking, no starvation."""

from types import SimpleNamespace

from flare.scheduler.queue import WaitingQueue


def waiting(*needs: int, max_passes: int = 2) -> WaitingQueue:
    queue = WaitingQueue(limit=10, max_passes=max_passes)
    for need in needs:
        queue.append(SimpleNamespace(need=need, passed=0))
    return queue


def admit(queue: WaitingQueue, room: int) -> list[int]:
    def reserve(request) -> bool:
        nonlocal room
        if request.need > room:
            return False
        room -= request.need
        return True

    return [request.need for request in queue.admit(reserve)]


def test_in_order_when_everything_fits():
    assert admit(waiting(3, 1, 2), room=6) == [3, 1, 2]


def test_smaller_requests_pass_a_blocked_one():
    queue = waiting(9, 1, 8, 2)
    assert admit(queue, room=5) == [1, 2]
    assert len(queue) == 2
    assert admit(queue, room=17) == [9, 8]


def test_a_blocked_request_is_passed_a_bounded_number_of_times():
    queue = waiting(9, 1, 1, 1, 1, max_passes=2)
    assert admit(queue, room=5) == [1, 1]
    assert admit(queue, room=5) == []  # now everything behind it waits
    assert admit(queue, room=9) == [9]
    assert admit(queue, room=9) == [1, 1]


def test_no_passing_at_all():
    assert admit(waiting(9, 1, max_passes=0), room=5) == []


def test_every_blocked_request_counts_for_itself():
    queue = waiting(9, 1, 7, 1, max_passes=2)
    assert admit(queue, room=3) == [1, 1]  # 9 was passed twice, 7 once
    queue.append(SimpleNamespace(need=1, passed=0))
    assert admit(queue, room=3) == []
    assert admit(queue, room=12) == [9, 1]  # 7 may be passed once more
    queue.append(SimpleNamespace(need=1, passed=0))
    assert admit(queue, room=3) == []
