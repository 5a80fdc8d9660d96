"""The suite for adapters finds what does not hold; its run of processes is a stand-in here."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework
from dask_train.roles import AddressBook
from dask_train.testing import frameworks
from dask_train.testing.frameworks import ContractRun, FrameworkTests, _is_free, _look_at_batches
from dask_train.testing.role_processes import RoleAnswer


class Suite(FrameworkTests):
    """Of an adapter that may be another one."""

    __test__ = False
    counts: ClassVar = {"worker": 2, "ps": 1}
    gives: ClassVar = frozenset({"rank"})
    made: ClassVar = Framework

    def framework(self):
        return self.made()


def suite(adapter=Framework, **settings):
    return type("Other", (Suite,), {"made": adapter, **settings})()


def met(**changes):
    """A run in which all went well, but for the changes."""
    addresses = AddressBook(worker=["127.0.0.1:5001", "127.0.0.1:5002"], ps=[""])
    keys = [("worker", 0), ("worker", 1), ("ps", 0)]
    answers = {key: RoleAnswer(value=key[1], extras=frozenset({"rank"})) for key in keys}
    return ContractRun(**{"addresses": addresses, "free": [], "early": [], "answers": answers} | changes)


CHECKS = [
    Suite.test_addresses_are_distinct_and_held,
    Suite.test_rendezvous_gives_what_it_promises,
    Suite.test_the_environment_is_as_it_was,
    Suite.test_roles_do_something_together,
    Suite.test_roles_by_default_end_when_stopped,
]


@pytest.mark.parametrize("check", CHECKS)
def test_what_holds_passes(check):
    check(suite(), met())


def with_answer(**changes):
    known = {"value": 1, "extras": frozenset({"rank"})} | changes
    return {"answers": {**met().answers, ("worker", 1): RoleAnswer(**known)}}


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (0, {"addresses": AddressBook(worker=["127.0.0.1:5001", "127.0.0.1:5001"])}),
        (0, {"addresses": AddressBook(worker=["somewhere:5001", "127.0.0.1:5002"])}),
        (0, {"free": ["127.0.0.1:5002"]}),
        (1, with_answer(error=ValueError("no peers"))),
        (1, with_answer(extras=frozenset())),
        (2, with_answer(changed=frozenset({"TF_CONFIG"}))),
        (3, with_answer(value=7)),
        (4, {"early": [("ps", 0)]}),
    ],
)
def test_what_does_not_hold_is_found(check, changes):
    with pytest.raises(AssertionError):
        CHECKS[check](suite(), met(**changes))


class Refusing(Framework):
    def check(self, counts):
        if counts.get("worker", 0) > 2:
            raise ValueError("too many workers")


class Agreeing(Framework):
    def agrees_every_step(self, counts):
        return True


class Sticking(Framework):
    def can_replace(self, role):
        return False


@pytest.mark.parametrize(("adapter", "is_refused"), [(Refusing, True), (Framework, False)])
def test_counts_that_check_has_to_refuse(adapter, is_refused):
    of = suite(adapter, refused=[({"worker": 3}, "too many")])
    if is_refused:
        of.test_check_takes_what_works_and_refuses_what_can_not()
    else:
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            of.test_check_takes_what_works_and_refuses_what_can_not()
    with pytest.raises(ValueError, match="too many"):
        suite(Refusing, counts={"worker": 3}).test_check_takes_what_works_and_refuses_what_can_not()


def test_what_a_loss_means():
    suite().test_a_run_knows_what_a_loss_means()
    suite(Agreeing).test_a_run_knows_what_a_loss_means()
    for wrong in (suite(Agreeing, counts={"worker": 1}), suite(Sticking)):
        with pytest.raises(AssertionError):
            wrong.test_a_run_knows_what_a_loss_means()


def test_an_adapter_that_loads_its_framework_too_early_is_found():
    suite(loads=["tensorflow"]).test_the_adapter_travels_and_loads_no_framework()
    with pytest.raises(AssertionError):
        suite(loads=["numpy"]).test_the_adapter_travels_and_loads_no_framework()


class Changing(Framework):
    """Makes other batches than it was given."""

    changes: ClassVar = staticmethod(lambda arrays: arrays)

    def to_batch(self, arrays):
        return type(self).changes(arrays)


def wrong_of(adapter):
    return _look_at_batches(SimpleNamespace(framework=adapter()))


@pytest.mark.parametrize(
    "changes",
    [
        list,
        lambda arrays: arrays[:1],
        lambda arrays: tuple(each.astype("f8") for each in arrays),
        lambda arrays: tuple(each + 1 if each.dtype.kind == "f" else each for each in arrays),
        lambda arrays: tuple(each.reshape(-1) for each in arrays),
    ],
    ids=["no tuple", "fewer", "another dtype", "other values", "another shape"],
)
def test_batches_that_have_changed_are_told(changes):
    assert wrong_of(type("Made", (Changing,), {"changes": staticmethod(lambda arrays: arrays)})) == []
    told = wrong_of(type("Made", (Changing,), {"changes": staticmethod(changes)}))
    assert told
    assert all("became" in each or "have become" in each for each in told)


def test_tensors_that_lose_their_memory_are_told():
    class Reusing(Framework):
        """Keeps what is made of batches in one place."""

        memory: ClassVar = np.zeros(1 << 20, np.uint8)

        def to_batch(self, arrays):
            for array in arrays:
                self.memory[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
            return tuple(self.memory[: each.nbytes].view(each.dtype).reshape(each.shape) for each in arrays)

    assert any(each.startswith("tensors of 0 to 5 have become") for each in wrong_of(Reusing))


@pytest.mark.parametrize(
    "memory",
    [
        lambda size: np.zeros(size, np.int8),
        lambda size: np.zeros(size + 1, np.uint8),
        lambda size: np.zeros(size + 64, np.uint8)[1 : size + 1],
    ],
    ids=["another dtype", "another size", "not aligned"],
)
def test_memory_that_does_not_fit_is_told(memory):
    class Own(Framework):
        def empty(self, num_bytes):
            return memory(num_bytes)

    assert any(each.startswith("empty(64) is ") for each in wrong_of(Own))


def test_batches_are_looked_at_as_they_lie_in_shared_rows_where_an_adapter_takes_them_so():
    seen = {}
    for views in (None, "writable", "read-only"):

        class Seeing(Framework):
            def to_batch(self, arrays):
                seen.setdefault(self.views, []).extend(array.flags.writeable for array in arrays)
                return arrays

        Seeing.views = views
        assert wrong_of(Seeing) == []
    assert len(seen["writable"]) == len(seen["read-only"]) > len(seen[None])
    assert all(seen["writable"])
    assert not all(seen["read-only"])


def test_a_port_is_held_while_somebody_has_it():
    with socket.socket() as holder:
        holder.bind(("127.7.7.7", 0))
        address = f"127.7.7.7:{holder.getsockname()[1]}"
        assert not _is_free(address)
    assert _is_free(address)


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        (LaunchError("worker 1 at 127.0.0.1:5002 did not come.", "It is slow.", "Wait longer."), False),
        (LaunchError("A worker did not come.", "It is slow.", "Wait longer."), True),
        (TimeoutError("127.0.0.1:5002"), True),
        (None, True),
    ],
    ids=["told", "without its address", "another error", "none"],
)
def test_a_peer_that_never_comes_has_to_be_told_with_its_address(error, is_found, monkeypatch):
    asked = []

    @contextmanager
    def processes(framework, counts, function_of):
        yield SimpleNamespace(
            addresses=lambda: met().addresses,
            meet=lambda key, addresses, timeout_s: asked.append((key, timeout_s)),
            answer=lambda key: RoleAnswer(error=error, took_s=3.0),
        )

    monkeypatch.setattr(frameworks, "RoleProcesses", processes)
    of = suite(waits=[("worker", 0)])
    if is_found:
        with pytest.raises(AssertionError):
            of.test_a_peer_that_never_comes()
    else:
        of.test_a_peer_that_never_comes()
    assert asked == [(("worker", 0), 3.0)], "alone"
