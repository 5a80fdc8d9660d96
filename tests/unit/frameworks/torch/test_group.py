"""How ranks meet at the store, and leave; by a stand-in for torch, with sockets that are real."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.torch import group
from dask_train.frameworks.torch.group import GroupPlace, process_group


class Store:
    """All that is told, once for all ranks; rank 0 takes the socket that listens."""

    told: dict[str, str]
    came: threading.Condition
    listeners: list[socket.socket]

    def __init__(self, host, port, num_ranks, is_server, timeout, *, wait_for_workers, master_listen_fd=None):
        assert (host, num_ranks, wait_for_workers, is_server) == ("127.0.0.1", 2, False, master_listen_fd is not None)
        if is_server:
            self.listeners.append(socket.socket(fileno=master_listen_fd))

    def set(self, key, value):
        with self.came:
            self.told[key] = value
            self.came.notify_all()

    def wait(self, keys, timeout):
        with self.came:
            if not self.came.wait_for(lambda: self.told.keys() >= set(keys), timeout.total_seconds()):
                raise RuntimeError("wait timeout\nC++ stack:\n#1")

    def get(self, key):
        return self.told[key].encode()


class Distributed(SimpleNamespace):
    """``torch.distributed``, as it is asked here."""

    def __init__(self):
        usual = SimpleNamespace(default_pg_timeout=timedelta(minutes=30), default_pg_nccl_timeout=timedelta(minutes=10))
        super().__init__(
            TCPStore=Store, constants=usual, made=[], timeouts=[], ended=threading.Event(), leaves=nullcontext
        )
        self.distributed_c10d = SimpleNamespace(_set_pg_timeout=self.timeouts.append)

    def init_process_group(self, backend, *, store, rank, world_size, timeout):
        assert timeout > timedelta(0)
        self.made.append((backend, rank, world_size))

    def is_initialized(self):
        return bool(self.made)

    def destroy_process_group(self):
        with self.leaves():
            self.ended.set()
        raise RuntimeError("The peers are gone.")


@pytest.fixture
def distributed(monkeypatch):
    made = Distributed()
    Store.told, Store.came, Store.listeners = {}, threading.Condition(), []
    cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=made, cuda=cuda))
    monkeypatch.setitem(sys.modules, "torch.distributed", made)
    monkeypatch.setattr(group, "Meetings", lambda *_, **__: SimpleNamespace(instead_of_torchs=nullcontext))
    # Ranks are threads here: what each sets has to stay until the other one has looked.
    monkeypatch.setattr(group, "environment_restored", nullcontext)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield made
    for listener in Store.listeners:
        listener.close()


@pytest.fixture
def holder():
    with hold_port() as holder:
        yield holder


def place_of(rank, holder, **settings):
    return GroupPlace(
        rank=rank,
        num_ranks=2,
        host="127.0.0.1",
        store=address_of("127.0.0.1", holder),
        port_holder=None if rank else holder,
        **settings,
    )


def meet(place, timeout_s=20.0):
    with process_group(place, timeout_s):
        pass


@pytest.mark.parametrize("makes_group", [True, False])
def test_all_meet_though_rank_0_is_late(distributed, holder, makes_group):
    first, second = (place_of(rank, holder, makes_group=makes_group) for rank in range(2))
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(meet, second)
        time.sleep(2 * group.RETRY_S)
        assert not early.done()
        meet(first)
        early.result()
    assert sorted(distributed.made) == ([("gloo", 0, 2), ("gloo", 1, 2)] if makes_group else [])
    assert distributed.timeouts == [timedelta(minutes=30)] * len(distributed.made), "the launch's is only for meeting"
    assert distributed.ended.is_set() == makes_group
    assert (os.environ["WORLD_SIZE"], os.environ["GLOO_SOCKET_IFNAME"]) == ("2", "lo")


def the_other_has_come():
    Store.told["place/1"] = json.dumps(("127.0.0.1", "", 0))


def test_the_store_stays_until_the_other_has_read_it(distributed, holder):
    the_other_has_come()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, place_of(0, holder))
        assert distributed.ended.wait(60), "its loop is over"
        with pytest.raises(TimeoutError):
            first.result(0.2)
        with Store.came:
            Store.told["met/1"] = ""
            Store.came.notify_all()
        first.result(60)


def test_errors_of_the_process_are_written_as_before(distributed, holder, monkeypatch):
    monkeypatch.setattr(distributed, "init_process_group", lambda *_, **__: setattr(sys, "excepthook", print))
    hook = sys.excepthook
    the_other_has_come()
    Store.told["met/1"] = ""
    with process_group(place_of(0, holder), 20.0):
        assert sys.excepthook is print
    assert sys.excepthook is hook


@pytest.mark.parametrize(("rank", "said"), [(0, r"wait timeout\. A rank"), (1, r".*refused\. A rank")])
def test_one_that_does_not_come_is_an_error_in_time(distributed, holder, rank, said):
    place = place_of(rank, holder)
    text = rf"Rank {rank} of 2 could not meet the others at {place.store} within 0\.1 s: {said}"
    with pytest.raises(LaunchError, match=text):
        meet(place, 0.1)
    assert distributed.made == []


def test_leaving_waits_for_a_peer_that_is_gone_no_longer_than_it_may(distributed, monkeypatch):
    monkeypatch.setattr(group, "LEAVE_S", 0.05)
    gone = threading.Lock()
    distributed.leaves = lambda: gone
    distributed.made.append(("gloo", 0, 2))
    with gone:
        group._leave()
        assert not distributed.ended.is_set()
    assert distributed.ended.wait(60)
