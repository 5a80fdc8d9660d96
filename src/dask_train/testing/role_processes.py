"""Real role processes without a cluster: each prepares, gets its peers' addresses, meets them, and does something.

As in a run, they are forks of a template that has imported the framework.
They stand in for the processes of a run, with its order of steps and its deadlines, and without its data.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, Self

import cloudpickle  # type: ignore[import-untyped]

from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.process.child import GONE_S, Child
from dask_train.process.launch import Launch, Preload, Process
from dask_train.process.templates import ProcessStart, Templates
from dask_train.roles import AddressBook
from dask_train.testing.role_process import RoleAnswer, RoleSession

Key = tuple[str, int]
RoleFunction = Callable[[RoleSession], Any]
# How long the template of a framework stays without being used, in seconds.
IDLE_S = 60.0


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
        self._children: dict[Key, Child] = {}
        self._ends: dict[Key, Connection] = {}
        works = {
            (role, rank): _by_value(
                framework,
                RoleInfo(role=role, rank=rank, counts=dict(counts), host=host, num_threads=1),
                function_of(role),
            )
            for role in counts
            for rank in range(counts[role])
        }
        preload = Preload(
            modules=(*framework.imports, "dask_train.testing.role_process"),
            environment=framework.import_environment,
            idle_s=IDLE_S,
        )
        for key in works:
            child = self._children[key] = Child(f"{key[0]} {key[1]}")
            self._ends[key] = Connection(os.dup(child.end.fileno()))
        try:
            with _without_name_of_test():
                starts = {
                    key: child.start(_launch(key, child, preload), _start) for key, child in self._children.items()
                }
                for key, started in starts.items():
                    self._wait_for_start(key, started)
            for key, work in works.items():
                self._ends[key].send_bytes(work)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for child in self._children.values():
            child.kill()
        for key, child in self._children.items():
            child.close()
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
        answer = self._receive(key)
        assert isinstance(answer, RoleAnswer)
        return answer

    def is_done(self, key: Key) -> bool:
        """Return whether its answer is there."""
        return self._ends[key].poll(0)

    def _wait_for_start(self, key: Key, started: Future[None]) -> None:
        try:
            started.result(max(self._deadline - time.monotonic(), 0.0))
        except TimeoutError:
            raise TimeoutError(f"{key[0]} {key[1]} did not start within the test's deadline") from None

    def _receive(self, key: Key) -> Any:
        if not self._ends[key].poll(max(self._deadline - time.monotonic(), 0.0)):
            raise TimeoutError(f"{key[0]} {key[1]} said nothing within the test's deadline")
        try:
            return cloudpickle.loads(self._ends[key].recv_bytes())
        except (EOFError, ConnectionResetError):
            child = self._children[key]
            status = child.reap(GONE_S)
            child.output.collect()
            printed = child.output.since(0)[1]
            raise RuntimeError(f"{key[0]} {key[1]} ended without an answer, exit code {status}\n{printed}") from None


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


def _launch(key: Key, child: Child, preload: Preload) -> Launch:
    return Launch(
        module="dask_train.testing",
        arguments=(key[0], str(key[1])),
        descriptors=child.inherited,
        output=child.output.descriptor,
        num_threads=1,
        preload=preload,
    )


@contextmanager
def _without_name_of_test() -> Iterator[None]:
    """Hide what pytest sets anew for each test: a template serves processes of its own environment only."""
    name = os.environ.pop("PYTEST_CURRENT_TEST", None)
    try:
        yield
    finally:
        if name is not None:
            os.environ["PYTEST_CURRENT_TEST"] = name


def _start(start: ProcessStart) -> Future[Process]:
    loop, templates = _templates()
    return asyncio.run_coroutine_threadsafe(templates.start(start), loop)


@cache
def _templates() -> tuple[asyncio.AbstractEventLoop, Templates]:
    """Return the templates of this process, which all of its tests share, and the event loop that they run on."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="templates of role processes", daemon=True).start()
    templates = Templates()
    atexit.register(loop.call_soon_threadsafe, templates.close)
    return loop, templates
