"""Members of a ring, a thread each, through real sockets."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.ring import Ring
from dask_train.collectives.wire import PIECE_BYTES
from dask_train.errors import LaunchError, StalledError
from dask_train.frameworks.ports import hold_port
from dask_train.transport.connections import Credentials

KNOWN = Credentials(key=b"run")


@pytest.fixture
def addresses():
    """So many that nobody else listens at."""
    with ExitStack() as stack:

        def make(count):
            ports = [stack.enter_context(hold_port()) for _ in range(count)]
            return [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]

        yield make


def together(addresses, member, credentials=KNOWN, timeout_s=60.0, before=lambda place: None, look=None):
    """What each member's function of its ring and place returns, or raises; ``before`` that the ring is made."""
    found = {}

    def take_part(place):
        try:
            before(place)
            ring = Ring(addresses, place, credentials, timeout_s, look=look)
            try:
                found[place] = member(ring, place)
            finally:
                ring.close()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=take_part, args=(place,)) for place in range(len(addresses))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return [found[place] for place in range(len(addresses))]


def array(place, size, dtype):
    return (np.random.default_rng(place).normal(size=size) * 100).astype(dtype)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_all_have_the_sum(addresses, size, kind, make_certificates, no_leaks):
    cases = [(0, "f4"), (1, "f8"), (4, "i8"), (1_000, "f4"), (300_001, "f4")]

    def member(ring, place):
        sums = []
        for case in cases:
            mine = array(place, *case)
            ring([mine])
            sums.append(mine)
        return sums

    credentials = Credentials(key=b"run", tls=make_certificates() if kind == "tls" else None)
    places = addresses(size)
    with no_leaks():
        found = together(places, member, credentials)
    for number, case in enumerate(cases):
        wanted = sum(array(place, *case) for place in range(size))
        for its in found:
            np.testing.assert_allclose(its[number], wanted, rtol=1e-5, atol=1e-3)
            np.testing.assert_array_equal(its[number], found[0][number], err_msg="to the last bit on all of them")


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_have_what_the_first_one_had_and_what_each_had(addresses, size):
    cases = [(0, "f4"), (1, "f8"), (1_000, "f4"), (300_001, "f4")]
    edges = [0, *range(7, 7 * size, 7), 900]
    blocks = [[slice(first, stop - 3), slice(stop - 3, stop)] for first, stop in itertools.pairwise(edges)]
    blocks[1].append(slice(950, 960))

    def member(ring, place):
        firsts = []
        for case in cases:
            mine = array(place, *case)
            ring.broadcast(mine)
            firsts.append(mine.tobytes())
        gathered = np.full(1_000, -1)
        for at in blocks[place]:
            gathered[at] = place
        ring.gather(gathered, blocks)
        return firsts, gathered.tolist()

    wanted = np.full(1_000, -1)
    for place, its in enumerate(blocks):
        for at in its:
            wanted[at] = place
    assert (
        together(addresses(size), member) == [([array(0, *case).tobytes() for case in cases], wanted.tolist())] * size
    )


@pytest.mark.parametrize("size", [2, 3])
def test_all_keep_the_same_rounded_sum_of_numbers_that_are_added_in_float32(addresses, size):
    lengths = [0, 1, 1000, PIECE_BYTES // 2 + 3]

    def rounded(numbers):
        return numbers.astype(pytest.importorskip("ml_dtypes").bfloat16).astype("f4")

    def member(ring, place):
        mine = [array(place, length, "f4") for length in lengths]
        ring(mine, rounds=True)
        return mine

    found = together(addresses(size), member)
    for number, length in enumerate(lengths):
        first, *others = [its[number] for its in found]
        assert all(other.tobytes() == first.tobytes() for other in others)
        np.testing.assert_array_equal(first, rounded(first), "the sum is rounded")
        given = [array(place, length, "f4") for place in range(size)]
        assert (abs(first - sum(given)) <= size * sum(map(abs, given)) / 256).all()
        if size == 2:  # the numbers of one of them are rounded once, and then the sum
            one, other = given
            either = [rounded(rounded(one) + other), rounded(one + rounded(other))]
            assert ((first == either[0]) | (first == either[1])).all()


def test_a_ring_is_made_again_at_the_same_addresses(addresses):
    places = addresses(3)
    for _ in range(3):
        assert together(places, lambda ring, place: None) == [None] * 3


def test_one_that_goes_is_told(addresses, no_leaks):
    def member(ring, place):
        if place != 1:
            ring([np.ones(10)])

    places = addresses(3)
    with no_leaks():
        first, _, last = together(places, member)
    for error in (first, last):
        assert isinstance(error, StalledError)
        assert "A worker of another host is gone" in str(error)


def test_one_that_does_not_sum_is_not_waited_for_for_ever(addresses):
    def member(ring, place):
        if place == 0:
            with pytest.raises(StalledError, match=r"did not come to a sum within 1 s"):
                ring([np.ones(10)])
            over.set()
        over.wait(60)

    over = threading.Event()
    assert together(addresses(2), member, timeout_s=1.0) == [None, None]


def test_one_that_does_not_come(addresses, no_leaks):
    places = addresses(2)
    told = rf"No worker of another host has come to {places[0]} within 0.3 s"
    with no_leaks(), pytest.raises(LaunchError, match=told):
        Ring(places, 0, KNOWN, 0.3)


def test_strangers_are_sent_away(addresses, no_leaks, wait_for):
    places = addresses(2)
    strangers, over = [], threading.Event()

    def knock():
        while not over.wait(0.01):
            try:
                stranger = socket.create_connection(("127.0.0.1", int(places[0].rpartition(":")[2])), 60)
            except OSError:
                continue  # it does not listen yet
            stranger.sendall(b"?" * 64)
            strangers.append(stranger)
            return

    def member(ring, place):
        mine = np.full(3, place + 1.0)
        ring([mine])
        return mine.tolist()

    with no_leaks():
        knocking = threading.Thread(target=knock)
        knocking.start()
        found = together(places, member, before=lambda place: place and wait_for(lambda: strangers, "they were first"))
        over.set()
        knocking.join()
        strangers.pop().close()
    assert found == [[3.0] * 3, [3.0] * 3]


@pytest.mark.parametrize("drips", [False, True])
def test_who_says_nothing_holds_nobody_up(addresses, no_leaks, drips):
    """Many that connect first, and are silent, or say a byte now and then."""
    places = addresses(2)
    host, _, port = places[0].rpartition(":")
    strangers, there, over = [], threading.Event(), threading.Event()

    def knock():
        while len(strangers) < 80 and not over.wait(0.01):
            with suppress(ConnectionError):
                strangers.append(socket.create_connection((host, int(port)), 60))
        there.set()
        while drips and not over.wait(0.05):
            for stranger in strangers:
                with suppress(OSError):
                    stranger.send(b"x")

    def member(ring, place):
        mine = np.full(3, place + 1.0)
        ring([mine])
        return mine.tolist()

    with no_leaks():
        knocking = threading.Thread(target=knock)
        knocking.start()
        found = together(places, member, timeout_s=60.0, before=lambda place: place and there.wait(60))
        over.set()
        knocking.join()
        for stranger in strangers:
            stranger.close()
    assert found == [[3.0] * 3, [3.0] * 3]


def test_strangers_do_not_make_it_wait_longer(addresses, no_leaks):
    places = addresses(2)
    host, _, port = places[0].rpartition(":")
    over, failed = threading.Event(), []

    def come():
        with pytest.raises(LaunchError) as error:
            Ring(places, 0, KNOWN, 1.0)
        failed.append(error)
        over.set()

    with no_leaks(), ExitStack() as strangers:
        coming = threading.Thread(target=come)
        coming.start()
        while not over.wait(0.05):  # one after the other, all the time
            with suppress(ConnectionError):
                strangers.enter_context(socket.create_connection((host, int(port)), 60))
        coming.join()
    assert "No worker of another host has come" in str(failed[0].value)


@pytest.mark.parametrize("size", [2, 3])
def test_arrays_that_are_summed_together_have_the_bits_of_each_alone(addresses, size):
    cases = [(300_001, "f4"), (0, "f4"), (5, "f8"), (1_000, "f4")]

    def member(ring, place):
        together, alone = ([array(place, *case) for case in cases] for _ in range(2))
        ring(together)
        for one in alone:
            ring([one])
        return [one.tobytes() for one in together], [one.tobytes() for one in alone]

    for together_, alone in together(addresses(size), member):
        assert together_ == alone


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_each_gets_what_the_one_before_passes_on(addresses, size, kind, make_certificates):
    def member(ring, place):
        return [ring.pass_on(b"%d" % place * length) for length in (1, 0, 3_000_000)]

    credentials = Credentials(key=b"run", tls=make_certificates() if kind == "tls" else None)
    found = together(addresses(size), member, credentials, look=lambda: None)
    for place, its in enumerate(found):
        assert its == [b"%d" % ((place - 1) % size) * length for length in (1, 0, 3_000_000)]


@pytest.mark.parametrize("size", [2, 3])
def test_nobody_goes_on_before_all_have_come(addresses, size):
    come = []

    def member(ring, place):
        if place == 1:
            assert not later.wait(0.2)
        come.append(place)
        ring.meet()
        return len(come)

    later = threading.Event()
    assert together(addresses(size), member) == [size] * size


@pytest.mark.parametrize("call", ["sum", "sum of much", "broadcast", "meet", "pass on"])
def test_one_that_looks_leaves_its_wait_where_a_member_is_lost(addresses, call, no_leaks):
    """Whether it waits for what comes, or for room for what it sends."""
    lost, over = threading.Event(), threading.Event()

    def look():
        if lost.is_set():
            raise PeerLostError

    def member(ring, place):
        if place == 1:  # it hangs, and is told to be lost
            lost.set()
            over.wait(60)
            return
        much = np.ones(3_000_000)
        calls = {"sum": lambda: ring([np.ones(3)]), "sum of much": lambda: ring([much])}
        calls |= {"broadcast": lambda: ring.broadcast(much), "meet": ring.meet, "pass on": lambda: ring.pass_on(b"x")}
        with pytest.raises(PeerLostError):
            calls[call]()
        ring.close()
        over.set()

    places = addresses(2)
    with no_leaks():
        assert together(places, member, look=look) == [None, None]


def test_one_that_looks_takes_a_closed_connection_for_a_loss(addresses, no_leaks):
    def member(ring, place):
        if place:
            ring([np.ones(3)])

    places = addresses(2)
    with no_leaks():
        first, second = together(places, member, look=lambda: None)
    assert (first, type(second)) == (None, PeerLostError)


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_looks_does_not_wait_for_a_lost_one_to_come(addresses, place, no_leaks):
    looks = iter(range(100))

    def look():
        if next(looks, 5) >= 5:
            raise PeerLostError

    places = addresses(2)
    with no_leaks(), pytest.raises(PeerLostError):
        Ring(places, place, KNOWN, 60.0, look=look)
