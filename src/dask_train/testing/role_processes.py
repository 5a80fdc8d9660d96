"""Real role processes without a cluster: each prepares, gets its peers' addresses, meets them, and does something.

They stand in for the processes of a run, with its order of steps and its deadlines, and without its data.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

import cloudpickle  # type: ignore[import-untyped]

from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.keras_models.imported_later import parts_imported_later
from dask_train.roles import AddressBook

Key = tuple[str, int]
RoleFunction = Callable[["RoleSession"], Any]


class RoleSession:
    """What a role's function is given here, in place of a run's session.

    Attributes
    ----------
    me, framework
        Which role this is, and its adapter.
    extras
        What the rendezvous gave; each is an attribute too, and a function among them is called once.
    """

    def __init__(self, me: RoleInfo, framework: Framework, extras: Mapping[str, Any], told: Connection) -> None:
        self.me, self.framework, self.extras, self._told = me, framework, extras, told

    def __getattr__(self, name: str) -> Any:
        extras = self.__dict__.get("extras", {})
        if name not in extras:
            raise AttributeError(f"the rendezvous gave no {name!r}, only {', '.join(extras)}")
        value = extras[name]() if callable(extras[name]) else extras[name]
        setattr(self, name, value)
        return value

    def wait_until_stopped(self) -> None:
        """Return when the test stops this role."""
        self._told.recv()


@dataclass(frozen=True, kw_only=True)
class RoleAnswer:
    """What became of a role process: its function's ``value``, or the exception that left ``rendezvous``.

    Attributes
    ----------
    value, error
        One of them.
    extras
        The names that the rendezvous gave.
    changed
        Environment variables that are not as they were before the rendezvous.
    took_s
        How long rendezvous and function took, in seconds.
    """

    value: Any = None
    error: BaseException | None = None
    extras: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    took_s: float = 0.0


class RoleProcesses:
    """The role processes of one run; a context manager that kills what is left at its end.

    Parameters
    ----------
    framework
        The adapter, of which each process gets a copy.
    counts
        How many there are of each role.
    function_of
        What each role does, by name; it may come from a module that the processes can't import.
    host
        The address of this machine that they tell each other.
    deadline_s
        How long everything may take, in seconds.
    """

    def __init__(
        self,
        framework: Framework,
        counts: Mapping[str, int],
        function_of: Callable[[str], RoleFunction],
        *,
        host: str = "127.0.0.1",
        deadline_s: float = 90.0,
    ) -> None:
        self._deadline = time.monotonic() + deadline_s
        self._processes: dict[Key, Any] = {}
        self._ends: dict[Key, Connection] = {}
        context = multiprocessing.get_context("spawn")  # neither TensorFlow nor torch survives a fork
        for role in counts:
            for rank in range(counts[role]):
                me = RoleInfo(role=role, rank=rank, counts=dict(counts), host=host, num_threads=1)
                ours, theirs = context.Pipe()
                work = _by_value(framework, me, function_of(role))
                process = context.Process(target=_be_role, args=(work, theirs), daemon=True)
                process.start()
                theirs.close()
                self._processes[role, rank], self._ends[role, rank] = process, ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for key, process in self._processes.items():
            process.join()
            process.close()
            self._ends[key].close()

    def addresses(self) -> AddressBook:
        """Return what ``prepare`` returned in each, by role and rank, when all have."""
        book = AddressBook()
        for key in self._ends:
            address = self._receive(key)
            if isinstance(address, RoleAnswer):
                raise RuntimeError(f"{key} could not prepare") from address.error
            book.setdefault(key[0], []).append(address)
        return book

    def meet(self, key: Key, peers: AddressBook, timeout_s: float) -> None:
        """Let one enter its rendezvous, and then its function."""
        self._ends[key].send((peers, timeout_s))

    def stop(self, key: Key) -> None:
        """End its ``wait_until_stopped``."""
        with suppress(BrokenPipeError):  # it has ended
            self._ends[key].send("stop")

    def answer(self, key: Key) -> RoleAnswer:
        """Return what became of one; waits for it."""
        found = self._receive(key)
        assert isinstance(found, RoleAnswer)
        return found

    def is_done(self, key: Key) -> bool:
        """Return whether its answer is there."""
        return self._ends[key].poll(0)

    def _receive(self, key: Key) -> Any:
        if not self._ends[key].poll(max(self._deadline - time.monotonic(), 0.0)):
            raise TimeoutError(f"{key[0]} {key[1]} said nothing within the test's deadline")
        try:
            return cloudpickle.loads(self._ends[key].recv_bytes())
        except EOFError:
            process = self._processes[key]
            process.join(5.0)
            raise RuntimeError(f"{key[0]} {key[1]} ended without an answer, exit code {process.exitcode}") from None


def _by_value(framework: Framework, me: RoleInfo, function: RoleFunction) -> bytes:
    """Pickled with the code of the test module, which its runner may have imported under a name of its own."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    ours = module is None or module.__name__.startswith("dask_train.")
    if not ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((framework, me, function))
    finally:
        if not ours:
            cloudpickle.unregister_pickle_by_value(module)


def _be_role(work: bytes, end: Connection) -> None:
    """Run a role process; in the end it leaves without taking its framework apart, as a run's does.

    It stays until the test is through: a TensorFlow session that a peer opens later waits for every server.
    As in a run, frameworks are imported without what few programs use and without garbage collections.
    """
    gc.disable()
    try:
        with parts_imported_later():
            answer = _meet_and_do(work, end)
    except BaseException as error:
        traceback.print_exc()
        answer = RoleAnswer(error=error)
    end.send_bytes(cloudpickle.dumps(answer))
    sys.stderr.flush()
    with suppress(EOFError):
        end.recv()
    os._exit(0)


def _meet_and_do(work: bytes, end: Connection) -> RoleAnswer:
    framework, me, function = cloudpickle.loads(work)
    end.send_bytes(cloudpickle.dumps(framework.prepare(me)))
    peers, timeout_s = end.recv()
    before, started = dict(os.environ), time.monotonic()
    value, error, extras = None, None, frozenset[str]()
    try:
        with framework.rendezvous(me, peers, timeout_s) as given:
            extras = frozenset(given)
            value = function(RoleSession(me, framework, given, end))
    except Exception as failure:
        error = failure
    changed = frozenset(key for key, _ in dict(os.environ).items() ^ before.items())
    return RoleAnswer(value=value, error=error, extras=extras, changed=changed, took_s=time.monotonic() - started)
