"""What ranks tell each other as a call begins: two of them, as threads of this process."""

from __future__ import annotations

import os
import threading
from contextlib import closing

import numpy as np
import pytest

from dask_train.collectives import Hosts, ProcessGroup, meet
from dask_train.collectives.announcements import PAYLOAD_BYTES, Announcements, CollectiveCall
from dask_train.errors import StalledError

NAMES = ["worker 0", "ps 0", "worker 1"]


@pytest.fixture
def together(in_threads):
    """What ``do(announcements, rank)`` returns on each rank of one host."""

    def take(do, size=2, timeout_s=60.0):
        hosts = Hosts.of([f"10.0.0.1:{os.getpid()}-{threading.get_ident()}-{rank}" for rank in range(size)])

        def part(rank):
            group = ProcessGroup(hosts, rank, meet(hosts, rank, b"run", 60.0), None, timeout_s)
            with closing(group):
                return do(Announcements(group, NAMES[:size]), rank)

        return in_threads(*(lambda rank=rank: part(rank) for rank in range(size)))

    return take


def payload(*values):
    return np.array(values, np.uint8)


def test_calls_are_the_same_where_their_texts_are():
    assert CollectiveCall("sum of float64 (3,)") == CollectiveCall("sum of float64 (3,)")
    assert CollectiveCall("sum of float64 (3,)").digest != CollectiveCall("sum of float64 (4,)").digest
    assert CollectiveCall("barrier()").shown == b"barrier()"


def test_a_long_call_is_shown_in_part_and_compared_whole():
    one, other = CollectiveCall("é" * 400 + "1"), CollectiveCall("é" * 400 + "2")
    assert one.shown == other.shown
    assert one.shown.endswith(b"...")
    assert len(one.shown) < len(one.text.encode())
    assert one.digest != other.digest


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_ranks_are_told_what_each_has_sent_along(together, size):
    def do(announcements, rank):
        # Several parts, another number of bytes from each, and none from the first.
        return [
            bytes(told) for told in announcements.exchange(CollectiveCall("c"), [payload(rank)] * rank + [payload()])
        ]

    assert together(do, size) == [[bytes([rank] * rank) for rank in range(size)]] * size


def test_as_much_as_a_page_takes(together):
    def do(announcements, rank):
        mine = np.full(PAYLOAD_BYTES, rank + 1, np.uint8)
        return [bytes(told) for told in announcements.exchange(CollectiveCall("c" * 5000), [mine])]

    assert together(do) == [[bytes([1]) * PAYLOAD_BYTES, bytes([2]) * PAYLOAD_BYTES]] * 2


def test_what_was_told_is_good_until_the_next_exchange_but_one(together):
    def do(announcements, rank):
        first = announcements.exchange(CollectiveCall("one"), [payload(10 + rank)])
        second = announcements.exchange(CollectiveCall("two"), [payload(20 + rank)])
        return [told[0] for told in (*first, *second)]

    assert together(do) == [[10, 11, 20, 21]] * 2


def test_a_shorter_call_leaves_nothing_of_a_longer_one(together):
    def do(announcements, rank):
        for _ in range(2):
            announcements.exchange(CollectiveCall("a long call, of many words"), [payload(1, 2, 3)])
        with pytest.raises(ValueError, match="calls") as error:
            announcements.exchange(CollectiveCall(f"c{rank}"), [payload()])
        return str(error.value)

    first, second = together(do)
    assert first.startswith("worker 0 calls c0, and ps 0 calls c1. All training roles make the same calls")
    assert second.startswith("ps 0 calls c1, and worker 0 calls c0. All")


def test_one_that_has_left_is_named(together):
    def do(announcements, rank):
        announcements.exchange(CollectiveCall("c"))
        if rank == 2:
            announcements.leave()
            return ""
        with pytest.raises(ValueError, match="has returned") as error:
            announcements.exchange(CollectiveCall("d"))
        return str(error.value)

    found = together(do, 3)
    for rank in (0, 1):
        assert found[rank].startswith(f"{NAMES[rank]} calls d, and worker 1 has returned: it takes part in no call")


def test_one_that_does_not_come_in_time(together):
    left = threading.Event()

    def do(announcements, rank):
        if rank:
            assert left.wait(60)
            return
        with pytest.raises(StalledError, match=r"Rank 1 did not come .* for 0\.05 s"):
            announcements.exchange(CollectiveCall("c"))
        left.set()

    together(do, timeout_s=0.05)
