"""Ranks that are threads meet, and tell a stand-in for JAX where its coordinator is."""

from __future__ import annotations

import inspect
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.jax import group
from dask_train.frameworks.jax.group import process_group
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.words import RankPlace


class Distributed:
    """``jax.distributed``, as it is asked here."""

    def __init__(self):
        self.asked, self.is_up = [], False
        self.refusal, self.released = None, threading.Event()
        self.released.set()

    def initialize(self, **asked):
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(asked)
        self.is_up = True

    def is_initialized(self):
        return self.is_up

    def shutdown(self):
        self.released.wait(60)
        self.is_up = False
        raise RuntimeError("the others are gone")


@pytest.fixture
def distributed(monkeypatch):
    made = Distributed()
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(distributed=made))
    return made


@pytest.fixture
def holder():
    with hold_port() as holder:
        yield holder


def place_of(rank, num_ranks, holder):
    return RankPlace(
        rank=rank,
        num_ranks=num_ranks,
        meeting=address_of("127.0.0.1", holder),
        port_holder=None if rank else holder,
    )


def meet(holder, num_ranks, timeout_s=20.0):
    """Whether each is in the group while another one waits for the same."""
    all_there = threading.Barrier(num_ranks)

    def be(rank):
        with process_group(place_of(rank, num_ranks, holder), timeout_s):
            return all_there.wait(60)

    with ThreadPoolExecutor(num_ranks) as pool:
        return [*pool.map(be, range(num_ranks))]


def test_all_are_told_of_one_coordinator(distributed, holder):
    meeting = address_of("127.0.0.1", holder)
    assert sorted(meet(holder, 3)) == [0, 1, 2]
    assert sorted(asked["process_id"] for asked in distributed.asked) == [0, 1, 2]
    assert {asked["num_processes"] for asked in distributed.asked} == {3}
    (coordinator,) = {asked["coordinator_address"] for asked in distributed.asked}
    assert coordinator.startswith("127.0.0.1:")
    assert coordinator != meeting


def test_a_stranger_who_says_nothing_holds_nobody_up(distributed, holder):
    holder.listen(8)  # so that the stranger is the first
    with socket.create_connection(("127.0.0.1", holder.getsockname()[1])):
        assert len(meet(holder, 2, timeout_s=5.0)) == 2


def test_the_coordinators_port_is_held_while_the_group_lasts(distributed, holder):
    with process_group(place_of(0, 1, holder), 5.0):
        port = int(distributed.asked[0]["coordinator_address"].rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", port))
    with socket.socket() as other:
        other.bind(("", port))


def test_what_jax_says_is_told_with_the_address(distributed, holder):
    distributed.refusal = RuntimeError("DEADLINE_EXCEEDED: no answer\n  at coordination.cc")
    place = place_of(0, 1, holder)
    text = rf"Rank 0 of 1 could not meet the others at {place.meeting} within 5 s: DEADLINE_EXCEEDED: no answer\."
    with pytest.raises(LaunchError, match=text), process_group(place, 5.0):
        pass


def test_arrays_that_were_made_before_are_told(distributed, holder):
    distributed.refusal = RuntimeError("jax.distributed.initialize() must be called before any JAX calls that might")
    refused = pytest.raises(
        LaunchError, match=r"Rank 0 of 1 could not join .*refers to an array of JAX.*numpy\.asarray"
    )
    with refused, process_group(place_of(0, 1, holder), 5.0):
        pass


def test_a_cluster_of_another_kind_says_nothing_of_devices(distributed, holder):
    with process_group(place_of(0, 1, holder), 5.0):
        assert distributed.asked[0]["cluster_detection_method"] == "deactivate"


@pytest.mark.parametrize("names", [(), ("heartbeat_timeout_seconds", "shutdown_timeout_seconds")])
def test_deadlines_are_set_where_jax_lets_them_be(distributed, holder, monkeypatch, names):
    settings = ("coordinator_address", "num_processes", "process_id", "cluster_detection_method")
    known = [*settings, "initialization_timeout", *names]
    kinds = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in known]
    initialize = distributed.initialize

    def checked(**asked):
        assert sorted(asked) == sorted(known)
        initialize(**asked)

    checked.__signature__ = inspect.Signature(kinds)
    monkeypatch.setattr(distributed, "initialize", checked)
    with process_group(place_of(0, 1, holder), 5.0):
        assert distributed.asked


def test_leaving_waits_for_one_that_hangs_no_longer_than_it_may(distributed, holder, monkeypatch):
    monkeypatch.setattr(group, "LEAVE_S", 0.05)
    distributed.released.clear()
    try:
        with process_group(place_of(0, 1, holder), 5.0):
            pass
        assert distributed.is_up, "it still leaves"
    finally:
        distributed.released.set()
