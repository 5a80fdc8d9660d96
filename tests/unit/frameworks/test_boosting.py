"""What adapters of boosting libraries share, by one for a library that is a module of Python's own."""

from __future__ import annotations

import socket

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks import boosting
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.boosting import BoostingFramework
from dask_train.roles import AddressBook


class Boosting(BoostingFramework):
    name = "json"
    title = "JSONBoost"


def info(role, rank=0, **counts):
    return RoleInfo(role=role, rank=rank, counts=counts, host="127.0.0.1", num_threads=2)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"worker": 2, "ps": 1}, r"ps=1 with framework='json': JSONBoost has no parameter server"),
        ({"scorer": 1, "logger": 1}, r"framework='json' with no role that trains, only scorer, logger"),
        ({}, "no role that trains, only none"),
    ],
)
def test_roles_that_can_not_be_served_are_refused(counts, text):
    with pytest.raises(ValueError, match=text):
        Boosting().check(counts)


def test_what_a_loss_means():
    framework = Boosting()
    framework.check({"chief": 1})
    assert [
        framework.agrees_every_step(counts) for counts in ({"chief": 1, "worker": 1}, {"worker": 1, "scorer": 1})
    ] == [
        True,
        False,
    ]
    assert [framework.can_replace(role) for role in ("chief", "worker", "scorer")] == [False, False, True]


@pytest.mark.parametrize("error", [ImportError("No module named 'x'"), OSError("libx.so.1: cannot open")])
def test_a_library_that_can_not_be_imported_is_told_with_what_to_install(monkeypatch, error):
    def fail(name):
        assert name == "json"
        raise error

    monkeypatch.setattr(boosting.importlib, "import_module", fail)
    with pytest.raises(LaunchError, match=r"JSONBoost can't be imported for worker 1: .*\. Install.*'\.\[json\]'"):
        Boosting().prepare(info("worker", 1, worker=2))


def test_rank_0_alone_holds_a_port_and_gives_it_away_once():
    counts = {"chief": 1, "worker": 2, "scorer": 1}
    for me in (info("worker", 0, **counts), info("worker", 1, **counts), info("scorer", **counts)):
        assert Boosting().prepare(me) == ""
    framework, me = Boosting(), info("chief", **counts)
    address = framework.prepare(me)
    peers = AddressBook({"chief": [address], "worker": ["", ""], "scorer": [""]})
    place = framework._place(me, peers)
    with place.port_holder as holder:
        assert address == f"127.0.0.1:{holder.getsockname()[1]}" == place.meeting
        assert (place.rank, place.num_ranks) == (0, 3)
        assert framework._place(me, peers).port_holder is None
    place = Boosting()._place(info("worker", 1, **counts), peers)
    assert (place.rank, place.num_ranks, place.meeting, place.port_holder) == (2, 3, address, None)


def test_one_alone_meets_nobody_and_leaves_no_port():
    framework, me = Boosting(), info("worker", worker=1, scorer=1)
    address = framework.prepare(me)
    assert framework._place(me, AddressBook(worker=[address], scorer=[""])) is None
    with socket.socket() as other:
        other.bind(("", int(address.rpartition(":")[2])))
    assert Boosting()._place(info("scorer", worker=1, scorer=1), AddressBook(worker=[address], scorer=[""])) is None


def test_computing_is_progress(monkeypatch):
    spent = iter([0.0, 4.9, 5.0, 12.0])
    monkeypatch.setattr(boosting.time, "process_time", lambda: next(spent))
    assert [Boosting().pulse() for _ in range(4)] == [0, 0, 1, 2]
