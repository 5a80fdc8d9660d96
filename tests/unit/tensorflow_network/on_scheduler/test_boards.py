"""Rings: what is kept, and what a reader is given."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.scheduler.watched import changed_within
from dask_train.tensorflow_network.on_scheduler.boards import Boards, RingBuffer

ALL = 1 << 30


def _ring(maxlen: int, num_values: int) -> RingBuffer:
    ring = RingBuffer(maxlen)
    ring.append(b"%d" % number for number in range(num_values))
    return ring


@pytest.mark.parametrize(
    ("maxlen", "num_values", "number", "most", "first", "values"),
    [
        (10, 0, 0, ALL, 0, []),
        (10, 3, 0, ALL, 0, [b"0", b"1", b"2"]),
        (10, 3, 2, ALL, 2, [b"2"]),
        (10, 3, 3, ALL, 3, []),
        (3, 10, 0, ALL, 7, [b"7", b"8", b"9"]),
        (3, 10, 8, ALL, 8, [b"8", b"9"]),
        (10, 8, 0, 2, 6, [b"6", b"7"]),
        (10, 8, 7, 2, 7, [b"7"]),
    ],
)
def test_since(maxlen, num_values, number, most, first, values):
    assert _ring(maxlen, num_values).since(number, most) == (first, values)


@given(st.integers(1, 9), st.integers(0, 30), st.integers(0, 30), st.integers(1, 12))
def test_a_reader_gets_the_newest_with_their_numbers(maxlen, num_values, number, most):
    first, values = _ring(maxlen, num_values).since(min(number, num_values), most)
    assert values == [b"%d" % n for n in range(first, first + len(values))]
    assert first + len(values) == num_values
    assert len(values) == min(num_values - min(number, num_values), maxlen, most)


def test_a_ring_grows_with_its_readers_and_never_shrinks():
    boards = Boards()
    ring = boards.ring("scores", 2)
    ring.append([b"a", b"b", b"c"])
    assert boards.ring("scores", 5) is ring
    ring.append([b"d"])
    assert boards.ring("scores", 1).since(0, ALL) == (1, [b"b", b"c", b"d"])


def test_a_deleted_board_starts_anew():
    boards = Boards()
    old = boards.ring("scores", 2)
    old.append([b"a"])
    boards.delete("scores")
    boards.delete("scores")
    new = boards.ring("scores", 2)
    assert (new.count, new.id != old.id) == (0, True)


async def _told(act) -> list[bool]:
    boards = Boards()
    rings = [boards.ring("scores", 5), boards.ring("progress", 5)]
    waits = [asyncio.ensure_future(changed_within(ring.changed, 5)) for ring in rings]
    await asyncio.sleep(0)
    act(boards)
    for _ in range(10):  # turns of the event loop, not seconds
        await asyncio.sleep(0)
    told = [wait.done() and wait.result() for wait in waits]
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    return told


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda boards: boards.rings["scores"].append([b"a"]), [True, False]),
        (lambda boards: boards.delete("progress"), [False, True]),
        (lambda boards: boards.wake_all(), [True, True]),
    ],
    ids=["append", "delete", "wake_all"],
)
def test_who_is_told_of_a_change(act, told):
    assert asyncio.run(_told(act)) == told


def test_a_wait_for_a_change_ends():
    assert asyncio.run(changed_within(asyncio.Event(), 0.001)) is False
