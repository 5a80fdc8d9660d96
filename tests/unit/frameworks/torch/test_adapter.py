"""What the adapter of torch says and gives, by a stand-in for torch."""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.errors import DataError, LaunchError
from dask_train.frameworks.base import ALONE_S, RoleInfo
from dask_train.frameworks.torch import adapter
from dask_train.frameworks.torch.adapter import TorchFramework, TorchrunFramework
from dask_train.roles import AddressBook


def from_numpy(array):
    """Torch's own takes fewer dtypes than NumPy has."""
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order")
    if array.dtype.kind in "UMO":
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}")
    return array


@pytest.fixture
def torch(monkeypatch):
    made = SimpleNamespace(threads=[], is_up=False, groups=[], from_numpy=from_numpy)
    made.set_num_threads = lambda num: made.threads.append(("intra", num))
    made.get_num_interop_threads = lambda: 4
    made.set_num_interop_threads = lambda num: made.threads.append(("inter", num))
    made.distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: made.is_up)
    made.cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", made)

    @contextmanager
    def process_group(place, timeout_s):
        made.groups.append((place, timeout_s))
        if place.port_holder is not None:
            place.port_holder.close()
        yield SimpleNamespace(num_collectives=lambda: 3, trained_apart=lambda: True)

    monkeypatch.setattr(adapter, "process_group", process_group)
    return made


def info(role="worker", rank=0, **counts):
    return RoleInfo(role=role, rank=rank, counts=counts or {"worker": 2}, host="127.0.0.1", num_threads=2)


@pytest.mark.parametrize(
    ("counts", "text"),
    [({"worker": 2, "ps": 1}, "ps=1 with framework='torch'"), ({"scorer": 1}, "no role that trains, only scorer")],
)
def test_roles_that_can_not_be_served_are_refused(counts, text):
    with pytest.raises(ValueError, match=text):
        TorchFramework().check(counts)


def test_each_role_has_its_threads_and_pools_are_set_once(torch):
    TorchFramework().load(info())
    torch.get_num_interop_threads = lambda: 2
    TorchFramework().load(info())  # torch refuses it a second time
    assert torch.threads == [("intra", 2), ("inter", 2), ("intra", 2)]


def test_torch_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LaunchError, match=r"torch can't be imported for worker 1: .*'\.\[torch\]'"):
        TorchFramework().load(info(rank=1))


def test_torch_that_uses_no_device_is_told_with_why(torch):
    torch.__version__, torch.version = "2.13.0+cpu", SimpleNamespace(cuda=None)
    assert TorchFramework().lack_of_device() == "torch 2.13.0+cpu has no CUDA"
    torch.version.cuda = "13.0"
    assert TorchFramework().lack_of_device() == "torch.cuda.is_available() is False"
    torch.cuda.is_available = lambda: True
    assert TorchFramework().lack_of_device() == ""


def test_rank_0_holds_the_stores_port_which_does_not_listen(torch):
    framework = TorchFramework()
    address = framework.prepare(info())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5)
    with framework.rendezvous(info(), AddressBook(worker=[address, ""]), 7.0) as extras:
        assert extras == {}
    (place, timeout_s), others = torch.groups[0], [TorchFramework().prepare(info(rank=1)), framework._port_holder]
    assert (place.rank, place.num_ranks, place.store, place.makes_group, timeout_s) == (0, 2, address, True, 7.0)
    assert others == ["", None]


def test_torchrun_leaves_the_group_to_the_loop(torch):
    with TorchrunFramework().rendezvous(info(rank=1), AddressBook(worker=["h:1", ""]), 7.0):
        pass
    assert not torch.groups[0][0].makes_group


def test_a_scorer_is_in_no_group(torch):
    framework, me = TorchFramework(), info("scorer", worker=2, scorer=1)
    assert framework.prepare(me) == ""
    with framework.rendezvous(me, AddressBook(worker=["h:1", ""], scorer=[""]), 7.0) as extras:
        assert (extras, torch.groups, framework.pulse(), framework.remarks(me)) == ({}, [], 0, ())


def test_one_alone_meets_itself_on_this_host_and_keeps_its_threads(torch):
    framework = TorchFramework()
    with framework.alone(info(worker=1)) as extras:
        assert (extras, framework.pulse()) == ({}, 3)
    (place, timeout_s) = torch.groups[0]
    assert (place.store.rpartition(":")[0], timeout_s, torch.threads) == ("127.0.0.1", ALONE_S, [])
    assert framework.pulse() == 0


def test_a_group_of_the_users_own_is_not_taken_down(torch):
    torch.is_up = True
    with (
        pytest.raises(ValueError, match=r"worker 0 would have one of its own here\. Call"),
        TorchFramework().alone(info()),
    ):
        pass


def test_only_rank_0_remarks_that_all_have_trained_apart(torch):
    for rank in range(2):
        framework = TorchFramework()
        with framework.rendezvous(info(rank=rank), AddressBook(worker=["h:1", ""]), 7.0):
            pass
        assert [text[:38] for text in framework.remarks(info(rank=rank))] == [
            "Each of the 2 ranks has trained apart:"
        ] * (rank == 0)


def test_batches_are_on_their_own_memory_and_of_this_machines_byte_order(torch):
    plain, turned = np.arange(6.0).reshape(2, 3), np.array([1, 2, 300], ">i8")
    first, second = TorchFramework().to_batch((plain, turned))
    assert first.ctypes.data == plain.ctypes.data
    assert (second.dtype.isnative, second.tolist()) == (True, [1, 2, 300])


@pytest.mark.parametrize("dtype", ["U3", "M8[s]", "O"])
def test_columns_that_torch_has_not_are_refused(torch, dtype):
    text = r"Columns of float64, .* can't all become torch tensors: can't convert.*Turn text, dates and categories"
    with pytest.raises(DataError, match=text):
        TorchFramework().to_batch((np.zeros(2), np.zeros(2, dtype)))


def test_memory_is_pinned_where_there_is_cuda(torch):
    assert TorchFramework().empty(8) is None
    asked = []
    torch.cuda.is_available, torch.uint8 = (lambda: True), "uint8"
    torch.empty = lambda size, **how: (
        asked.append((size, how)) or SimpleNamespace(numpy=lambda: np.zeros(size, np.uint8))
    )
    assert TorchFramework().empty(8).shape == (8,)
    assert asked == [(8, {"dtype": "uint8", "pin_memory": True})]
