"""The ranks of a host meet; who is no rank of theirs is sent away."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from dask_train.collectives import Hosts, meet
from dask_train.errors import LaunchError
from dask_train.transport import reception as reception_module
from dask_train.transport import sockets
from dask_train.transport.connections import Credentials

KEY = b"run"


def addresses(count, host="10.0.0.1"):
    """Of ranks that nobody else has, on one host."""
    return tuple(f"{host}:{os.getpid()}-{threading.get_ident()}-{rank}" for rank in range(count))


def test_one_that_does_not_come():
    hosts = Hosts.of(addresses(2))
    with pytest.raises(LaunchError, match="1 of the 1 other ranks of this host have not come"):
        meet(hosts, 0, KEY, 0.1)
    with pytest.raises(LaunchError, match="Rank 0, which leads the ranks of this host, is not there"):
        meet(hosts, 1, KEY, 0.1)


@pytest.mark.parametrize("rank", [0, 1])
def test_who_sees_that_nobody_will_come_waits_no_longer(no_leaks, rank):
    looked = iter(range(3))

    def look():
        if next(looked) == 2:
            raise EOFError("it is lost")

    with no_leaks(), pytest.raises(EOFError, match="it is lost"):
        meet(Hosts.of(addresses(2)), rank, KEY, 60.0, look)


def test_who_has_lost_its_leader_waits_until_it_is_told(no_leaks, in_threads):
    """The connection ends with the leader's process, and the run tells of it later."""
    hosts, is_lost = Hosts.of(addresses(2)), threading.Event()
    listener = sockets.listen(Credentials(key=KEY).name_of(hosts.addresses[0]), 1)

    def be_lost():
        connection, _ = listener.accept()
        connection.close()
        listener.close()
        time.sleep(0.2)
        is_lost.set()

    def follow():
        def look():
            if is_lost.is_set():
                raise KeyError("the leader")

        with pytest.raises(KeyError, match="the leader"):
            meet(hosts, 1, KEY, 60.0, look)

    with no_leaks():
        in_threads(be_lost, follow)


def test_another_user_gets_no_memory(monkeypatch, in_threads):
    hosts = Hosts.of(addresses(2))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    def lead():
        with pytest.raises(LaunchError, match="1 of the 1 other ranks of this host have not come"):
            meet(hosts, 0, KEY, 1.0)

    def follow():
        with pytest.raises(LaunchError, match="Let all Dask workers of a host run as one user"):
            meet(hosts, 1, KEY, 60.0)

    in_threads(lead, follow)


def test_strangers_are_sent_away(no_leaks, wait_for):
    """Of this user too: neither one that is silent nor one that guesses counts as a rank, or holds it up."""
    places = addresses(2)
    hosts, found, strangers = Hosts.of(places), {}, []

    def take_part(rank):
        memory = meet(hosts, rank, KEY, 60.0)
        found[rank] = memory.num_ranks
        memory.close()

    def knock():
        named = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if places[0] in line]
        for name in named[:1]:
            for said in (b"", b"?" * 64):
                stranger = socket.socket(socket.AF_UNIX)
                stranger.connect("\0" + name[1:])
                stranger.sendall(said)
                strangers.append(stranger)
        return named

    with no_leaks():
        ranks = [threading.Thread(target=take_part, args=(rank,)) for rank in range(2)]
        ranks[0].start()
        wait_for(knock, "the first rank listens")
        ranks[1].start()
        for rank in ranks:
            rank.join(60)
            assert not rank.is_alive()
        for stranger in strangers:
            stranger.close()
    assert found == {0: 2, 1: 2}


def test_who_has_another_key_is_no_rank(in_threads):
    hosts = Hosts.of(addresses(2))

    def lead():
        with pytest.raises(LaunchError, match="have not come"):
            meet(hosts, 0, KEY, 0.5)

    def follow():
        with pytest.raises(LaunchError, match="Rank 0, which leads the ranks of this host, is not there"):
            meet(hosts, 1, b"another", 0.3)

    in_threads(lead, follow)


def test_all_ranks_of_a_host_may_come_at_once(monkeypatch, in_threads, no_leaks):
    """More than a reception has greetings of strangers in hand."""
    size = 8
    monkeypatch.setattr(reception_module, "_MOST", 1)
    hosts, all_here, prove = Hosts.of(addresses(size)), threading.Barrier(size - 1), Credentials.prove

    def wait_and_prove(self, connection, *, listens):
        if not listens:
            all_here.wait(60)
        prove(self, connection, listens=listens)

    monkeypatch.setattr(Credentials, "prove", wait_and_prove)

    def take_part(rank):
        memory = meet(hosts, rank, KEY, 60.0)
        memory.close()
        return memory.num_ranks

    with no_leaks():
        assert in_threads(*(lambda rank=rank: take_part(rank) for rank in range(size))) == [size] * size
