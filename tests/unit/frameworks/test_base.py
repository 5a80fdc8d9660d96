"""The adapter for no framework, which is also what an adapter does that says nothing else."""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dask_train.frameworks.base import ALONE_S, Framework, RoleInfo


def info(role="worker", rank=0, **settings):
    return RoleInfo(role=role, rank=rank, **{"counts": {"worker": 1}, "host": "h", "num_threads": 2} | settings)


def test_ranks_are_numbered_over_all_roles_that_train():
    me = info(counts={"worker": 2, "scorer": 1, "chief": 1})
    assert me.members == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert info(counts={"a": 1, "b": 1}, training=("b", "a", "c")).members == [("b", 0), ("a", 0)]


def test_certificates_are_not_shown():
    assert "secret" not in repr(info(tls={"key": "secret"}))


def test_only_a_parameter_server_has_a_default_and_it_serves_until_the_end():
    framework = Framework()
    assert [framework.default_role(role) for role in ("worker", "scorer")] == [None, None]
    stopped = []
    framework.default_role("ps")(SimpleNamespace(wait_until_stopped=lambda: stopped.append("stopped")))
    assert stopped == ["stopped"]


class Meeting(Framework):
    """Notes who meets whom, and changes the environment."""

    def __init__(self, address=""):
        self._address = address

    def prepare(self, me):
        os.environ["DASK_TRAIN_PREPARED"] = "1"
        return self._address

    @contextmanager
    def rendezvous(self, me, peers, timeout_s):
        os.environ["DASK_TRAIN_MET"] = "1"
        yield {"peers": peers.as_dict(), "timeout_s": timeout_s}


@pytest.mark.parametrize(("address", "peers"), [("h:1", {"worker": ["h:1"]}), ("", {})])
def test_one_alone_in_the_clients_process_meets_itself_and_leaves_no_trace(address, peers):
    before = dict(os.environ)
    with Meeting(address).alone(info()) as extras:
        assert extras == {"peers": peers, "timeout_s": ALONE_S}
        assert (os.environ["DASK_TRAIN_PREPARED"], os.environ["DASK_TRAIN_MET"]) == ("1", "1")
    assert dict(os.environ) == before


def test_nothing_is_met_without_a_framework():
    with Framework().alone(info()) as extras:
        assert extras == {}


def test_another_frameworks_data_sets_are_refused():
    with pytest.raises(ValueError, match=r"A run of framework='numpy' has no torch data sets\. Pass train"):
        Framework().dataset_of(None)
