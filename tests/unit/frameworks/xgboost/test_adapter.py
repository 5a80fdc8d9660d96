"""How XGBoost's tracker and communicator are set up, by a stand-in for XGBoost; ranks are threads."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.xgboost.adapter import XGBoostFramework
from dask_train.roles import AddressBook


class XGBoostError(ValueError):
    """As XGBoost's own."""


@pytest.fixture
def xgboost(monkeypatch):
    """What is asked of it, and what it refuses."""
    made = SimpleNamespace(trackers=[], joined=[], refusal=None, here=threading.local())

    class RabitTracker:
        def __init__(self, **asked):
            made.trackers.append(asked)

        def start(self):
            pass

        def worker_args(self):
            return {"dmlc_tracker_uri": "127.0.0.1", "dmlc_tracker_port": 4242}

    def init(**asked):
        if made.refusal:
            raise made.refusal
        made.joined.append(asked)
        made.here.rank = int(asked["dmlc_task_id"])

    collective = SimpleNamespace(init=init, get_rank=lambda: made.here.rank)
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(collective=collective))
    monkeypatch.setitem(sys.modules, "xgboost.core", SimpleNamespace(XGBoostError=XGBoostError))
    monkeypatch.setitem(sys.modules, "xgboost.tracker", SimpleNamespace(RabitTracker=RabitTracker))
    return made


def info(role, rank=0, **counts):
    return RoleInfo(role=role, rank=rank, counts=counts, host="127.0.0.1", num_threads=2)


def meet(me, peers, holder=None):
    framework = XGBoostFramework()
    framework._port_holder = holder
    with framework.rendezvous(me, peers, 20.0) as given:
        return given, framework._coordinator is not None


def test_rank_0_has_the_tracker_and_all_join_it_in_their_order(xgboost):
    with hold_port() as holder, ThreadPoolExecutor(3) as pool:
        peers = AddressBook(chief=[address_of("127.0.0.1", holder)], worker=["", ""])
        ranks = [info(role, rank, chief=1, worker=2) for role, rank in (("chief", 0), ("worker", 0), ("worker", 1))]
        given = [*pool.map(lambda me: meet(me, peers, None if me.role == "worker" else holder), ranks)]
    assert given == [({"num_threads": 2}, has_tracker) for has_tracker in (True, False, False)]
    assert xgboost.trackers == [{"n_workers": 3, "host_ip": "127.0.0.1", "sortby": "task"}]
    assert sorted(asked["dmlc_task_id"] for asked in xgboost.joined) == ["00000000", "00000001", "00000002"]
    assert {(asked["dmlc_tracker_uri"], asked["dmlc_tracker_port"]) for asked in xgboost.joined} == {
        ("127.0.0.1", 4242)
    }


@pytest.mark.parametrize("me", [info("worker", worker=1), info("scorer", worker=2, scorer=1)])
def test_who_meets_nobody_has_no_communicator(xgboost, me):
    assert meet(me, AddressBook(worker=["h:1", ""], scorer=[""])) == ({"num_threads": 2}, False)
    assert (xgboost.trackers, xgboost.joined) == ([], [])


def test_what_xgboost_says_is_told_with_the_trackers_address(xgboost):
    xgboost.refusal = XGBoostError("[12:00:00] Failed to connect.\nStack trace:\n  bt 0")
    with hold_port() as holder, ThreadPoolExecutor(2) as pool:
        peers = AddressBook(worker=[address_of("127.0.0.1", holder), ""])
        ranks = [pool.submit(meet, info("worker", rank, worker=2), peers, None if rank else holder) for rank in (0, 1)]
        text = r"Rank 1 of 2 could not join XGBoost's communicator at 127\.0\.0\.1:4242: \[12:00:00\] Failed to connect"
        with pytest.raises(LaunchError, match=text) as caught:
            ranks[1].result()
    assert "Stack trace" not in str(caught.value)
