"""What every framework's adapter has to hold to; an adapter's tests subclass :class:`FrameworkTests`."""

from __future__ import annotations

import errno
import json
import pickle
import re
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from dask_train.data.buffers import Buffers
from dask_train.data.columns import Column
from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework
from dask_train.frameworks.ranks import num_ranks
from dask_train.roles import AddressBook
from dask_train.testing.role_process import RoleAnswer, RoleSession
from dask_train.testing.role_processes import Key, RoleFunction, RoleProcesses

# How much longer than it was allowed a rendezvous may take to fail.
GRACE_S = 30.0

_LOADED = """
import json, pickle, sys
framework = pickle.loads(sys.stdin.buffer.read())
framework.check(json.loads(sys.argv[1]))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


class ContractRun(NamedTuple):
    """A run of real processes, as it went."""

    addresses: AddressBook
    free: list[str]
    early: list[Key]
    answers: dict[Key, RoleAnswer]


class FrameworkTests(ABC):
    """The contract suite of an adapter: real processes that prepare, meet and do something together.

    A subclass, named ``Test...``, gives what follows, and overrides :meth:`framework`, :meth:`together` and
    :meth:`check_together`.

    Attributes
    ----------
    counts
        The roles of the run that the suite makes.
    refused
        Counts that ``check`` refuses, and a pattern of what it says.
    loads
        Packages that only ``prepare`` may import.
    gives
        The names that ``rendezvous`` gives to each role.
    waits
        The roles whose rendezvous waits for others. Each is left alone once.

    Examples
    --------
    >>> from typing import ClassVar
    >>> from dask_train.testing import FrameworkTests
    >>> class TestMine(FrameworkTests):
    ...     counts: ClassVar = {"worker": 2}
    """

    counts: ClassVar[Mapping[str, int]] = {"worker": 2}
    refused: ClassVar[Sequence[tuple[Mapping[str, int], str]]] = ()
    loads: ClassVar[Sequence[str]] = ()
    gives: ClassVar[frozenset[str]] = frozenset()
    waits: ClassVar[Sequence[Key]] = ()

    @abstractmethod
    def framework(self) -> Framework:
        """Return a new adapter."""

    @staticmethod
    def together(session: RoleSession) -> Any:
        """Return what each role does that has no default; what it returns has to be picklable."""
        return session.me.rank

    def check_together(self, values: Mapping[Key, Any]) -> None:
        """Look at what :meth:`together` returned, by role and rank."""
        assert values == {key: key[1] for key in values}

    def _function_of(self, role: str) -> RoleFunction:
        return self.framework().default_role(role) or type(self).together

    @pytest.fixture(scope="class")
    @classmethod
    def met(cls) -> ContractRun:
        """Run all processes at once, for most tests; it takes as long as importing the framework."""
        suite = cls()
        framework = suite.framework()
        keys = [(role, rank) for role, count in suite.counts.items() for rank in range(count)]
        defaults = [key for key in keys if framework.default_role(key[0])]
        with RoleProcesses(framework, suite.counts, suite._function_of) as processes:
            addresses = processes.addresses()
            free = [address for _, _, address in addresses.tasks() if address and _is_free(address)]
            for key in keys:
                processes.meet(key, addresses, timeout_s=30.0)
            answers = {key: processes.answer(key) for key in keys if key not in defaults}
            early = [key for key in defaults if processes.is_done(key)]
            for key in defaults:
                processes.stop(key)
            answers |= {key: processes.answer(key) for key in defaults}
        return ContractRun(addresses, free, early, answers)

    def test_the_adapter_travels_and_loads_no_framework(self) -> None:
        """Client and scheduler may have no framework, and a Dask worker must not import one."""
        completed = subprocess.run(
            [sys.executable, "-c", _LOADED, json.dumps(dict(self.counts))],
            input=pickle.dumps(self.framework()),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr.decode()
        assert not set(self.loads) & set(json.loads(completed.stdout))

    def test_check_takes_what_works_and_refuses_what_can_not(self) -> None:
        """Refusals are ``ValueError`` with the reason, in the client."""
        framework = self.framework()
        framework.check(self.counts)
        for counts, why in self.refused:
            with pytest.raises(ValueError, match=why):
                framework.check(counts)

    def test_a_run_knows_what_a_loss_means(self) -> None:
        """Roles that agree at every step can't be replaced one by one."""
        framework = self.framework()
        if framework.agrees_every_step(self.counts):
            assert num_ranks(self.counts) > 1
        assert framework.can_replace("scorer")

    def test_addresses_are_distinct_and_held(self, met: ContractRun) -> None:
        """No other process is given a port between its announcement and its use."""
        addresses = [address for _, _, address in met.addresses.tasks() if address]
        assert len(set(addresses)) == len(addresses)
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses), addresses
        assert not met.free, "these ports are not bound"

    def test_rendezvous_gives_what_it_promises(self, met: ContractRun) -> None:
        """A rendezvous gives what it promises, and raises nothing."""
        errors = {key: repr(answer.error) for key, answer in met.answers.items() if answer.error}
        assert not errors
        assert {key: answer.extras for key, answer in met.answers.items()} == dict.fromkeys(met.answers, self.gives)

    def test_the_environment_is_as_it_was(self, met: ContractRun) -> None:
        """After the rendezvous, which may set what the framework reads."""
        changed = {key: answer.changed for key, answer in met.answers.items() if answer.changed}
        assert not changed

    def test_roles_do_something_together(self, met: ContractRun) -> None:
        """The subclass says what."""
        self.check_together({key: met.answers[key].value for key in met.answers if key[0] != "ps"})

    def test_roles_by_default_end_when_stopped(self, met: ContractRun) -> None:
        """A parameter server serves until then, and no longer."""
        assert not met.early, "these ended before they were stopped"

    def test_batches_keep_shape_dtype_and_values(self) -> None:
        """In memory of any alignment, with no rows too, and a tuple of one stays one; no memory is used too early."""
        with RoleProcesses(self.framework(), {"worker": 1}, lambda _: _look_at_batches) as processes:
            processes.meet(("worker", 0), processes.addresses(), timeout_s=30.0)
            answer = processes.answer(("worker", 0))
        assert answer.error is None, repr(answer.error)
        assert answer.value == []

    def test_a_peer_that_never_comes(self) -> None:
        """Ends in an error that names the address, and in time."""
        with ExitStack() as stack:
            runs = {
                key: stack.enter_context(RoleProcesses(self.framework(), self.counts, self._function_of))
                for key in self.waits
            }
            addresses = {key: processes.addresses() for key, processes in runs.items()}
            for key, processes in runs.items():  # all wait at the same time
                processes.meet(key, addresses[key], timeout_s=3.0)
            answers = {key: processes.answer(key) for key, processes in runs.items()}
        for key, answer in answers.items():
            assert isinstance(answer.error, LaunchError), f"{key}: {answer}"
            assert answer.error.cause
            assert answer.error.change
            assert any(address in str(answer.error) for _, _, address in addresses[key].tasks() if address)
            assert answer.took_s < 3.0 + GRACE_S


def _is_free(address: str) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("", int(address.rpartition(":")[2])))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def _batches() -> list[tuple[np.ndarray, ...]]:
    """Batches of every usual dtype, each once on memory that is aligned to 64 bytes and once on such that is not."""
    batches: list[tuple[np.ndarray, ...]] = []
    for dtype in ("float32", "float64", "int64", "int32", "uint8", "bool"):
        for offset in (0, 8):
            memory = np.zeros(512, np.uint8)
            start = -memory.ctypes.data % 64 + offset
            array = memory[start : start + 12 * np.dtype(dtype).itemsize].view(dtype).reshape(3, 4)
            array[...] = np.arange(12).reshape(3, 4) % 3
            batches.append((array,))
    batches.append((np.ones((5, 8, 8, 3), np.uint8), np.arange(5)))
    batches.append((np.zeros((0, 4), np.float32), np.zeros(0, np.int64)))
    return batches


def _views(views: str | None) -> list[tuple[np.ndarray, ...]]:
    """Batches as they lie in shared rows, for a framework that takes them so."""
    batches = _batches() if views is not None else []
    for arrays in batches:
        for array in arrays:
            array.flags.writeable = views == "writable"
    return batches


def _look_at_batches(session: RoleSession) -> list[str]:
    """Return what is wrong with the batches, in words."""
    wrong = _look_at_memory(session.framework)
    for arrays in [*_batches(), *_views(session.framework.views)]:
        expected = tuple(array.copy() for array in arrays)
        batch = session.framework.to_batch(arrays)
        if not isinstance(batch, tuple) or len(batch) != len(expected):
            wrong.append(f"{expected} became {batch!r}")
            continue
        for array, tensor in zip(expected, batch, strict=True):
            values = np.asarray(tensor)
            np.asarray(tensor[:1])  # an operation may fail on memory that can be read: TensorFlow aborts
            same = values.dtype == array.dtype and values.shape == array.shape and (values == array).all()
            if not same or len(tensor) != len(array):
                wrong.append(f"{array.dtype} {array.shape} {array!r} became {tensor!r}")
    return wrong


def _look_at_memory(framework: Framework) -> list[str]:
    """Return what is wrong with the memory of batches that are gathered: each tensor has to keep its own."""
    column = Column(dtype="<f4", row_shape=(16,))
    memory = framework.empty(column.row_bytes)
    if memory is not None:
        fits = memory.dtype == np.uint8 and memory.shape == (column.row_bytes,) and memory.flags.writeable
        if not fits or memory.ctypes.data % 64:
            return [f"empty({column.row_bytes}) is {memory.dtype} {memory.shape} at {memory.ctypes.data:#x}"]
    buffers = Buffers(framework.empty)
    tensors = []
    for number in range(6):
        array = buffers.array(column, 8)
        array[...] = number
        (tensor,) = framework.to_batch((array,))
        tensors.append(tensor[2:] if number % 2 else tensor)
        del array, tensor
    values = [np.unique(np.asarray(tensor)).tolist() for tensor in tensors]
    return [] if values == [[number] for number in range(6)] else [f"tensors of 0 to 5 have become {values}"]
