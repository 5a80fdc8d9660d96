"""What the adapter of JAX says and gives; JAX is not imported."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.errors import DataError, LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.jax import adapter
from dask_train.frameworks.jax.adapter import JaxFramework, distributed
from dask_train.roles import AddressBook


def info(role="worker", rank=0, **counts):
    return RoleInfo(role=role, rank=rank, counts=counts or {"worker": 2}, host="127.0.0.1", num_threads=2)


@pytest.fixture
def groups(monkeypatch):
    """The groups that were made."""
    made = []

    @contextmanager
    def process_group(place, timeout_s):
        made.append((place.rank, place.num_ranks, place.meeting, timeout_s))
        if place.port_holder is not None:
            place.port_holder.close()
        yield

    monkeypatch.setattr(adapter, "process_group", process_group)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    monkeypatch.setenv("NPROC", "")
    return made


@pytest.mark.parametrize(
    ("made", "counts", "text"),
    [
        (JaxFramework(), {"worker": 2, "ps": 1}, "ps=1 with framework='jax': JAX has no parameter server"),
        (distributed(), {"scorer": 1}, "'jax-distributed' with no role that trains, only scorer"),
    ],
)
def test_roles_that_can_not_be_served_are_refused(made, counts, text):
    with pytest.raises(ValueError, match=text):
        made.check(counts)


def test_roles_that_compute_apart_need_not_be_of_those_that_train():
    JaxFramework().check({"scorer": 1})


def test_jax_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("NPROC", "")
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(LaunchError, match=r"JAX can't be imported for worker 1: .*pip install jax"):
        JaxFramework().load(info(rank=1))


def test_jax_that_uses_no_device_is_told_with_what_keeps_it_from_one(monkeypatch):
    for backend, platforms, lack in [
        ("gpu", "", ""),
        ("cpu", "", "jax.default_backend() is 'cpu'"),
        ("cpu", "cpu", "JAX_PLATFORMS is 'cpu'"),
    ]:
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(default_backend=lambda backend=backend: backend))
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert JaxFramework().lack_of_device() == lack


def test_ranks_that_compute_together_meet_at_rank_0(groups):
    framework = distributed()
    address = framework.prepare(info())
    assert os.environ["NPROC"] == "2"
    assert [distributed().prepare(me) for me in (info(rank=1), info("scorer", worker=2, scorer=1))] == ["", ""]
    for made, me in ((framework, info()), (distributed(), info(rank=1))):
        with made.rendezvous(me, AddressBook(worker=[address, ""]), 7.0) as extras:
            assert [*extras] == ["mesh"]
    assert groups == [(0, 2, address, 7.0), (1, 2, address, 7.0)]
    assert framework._port_holder is None


@pytest.mark.parametrize(
    ("made", "me"), [(JaxFramework(), info()), (distributed(), info("scorer", worker=2, scorer=1))]
)
def test_others_wait_for_nobody(groups, made, me):
    assert made.prepare(me) == ""
    with made.rendezvous(me, AddressBook(), 7.0) as extras:
        assert [*extras] == ["mesh"]
    assert groups == []


def test_only_one_that_computes_apart_runs_in_the_clients_process():
    with JaxFramework().alone(info(worker=1)) as extras:
        assert [*extras] == ["mesh"]
    text = r"'jax-distributed' with worker 0 in the client's own process.*Pass framework='jax', or roles="
    with pytest.raises(ValueError, match=text), distributed().alone(info(worker=1)):
        pass


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TypeError("not a valid JAX array type"), r"Columns of int64, <U1 can't all become arrays of JAX: not a valid"),
        (ValueError("They would wrap around."), r"^They would wrap around\.$"),
    ],
)
def test_columns_that_jax_has_not_are_refused(monkeypatch, error, text):
    def shared_array(array):
        if array.dtype.kind == "U":
            raise error
        return array

    monkeypatch.setattr(adapter, "shared_array", shared_array)
    numbers = np.arange(2)
    assert JaxFramework().to_batch((numbers,))[0] is numbers
    with pytest.raises(DataError, match=text):
        JaxFramework().to_batch((numbers, np.array(["a", "b"])))
