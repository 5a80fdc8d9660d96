"""What all tests share: waiting for a condition, and clusters of real processes that leave nothing behind."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
import forks
import psutil
import pytest
from distributed import Client, LocalCluster
from distributed import core as distributed_core
from kept_templates import KeptTemplates

# Each of Dask's processes looks at itself up to 100 times a second, at a twelfth of a core; those of tests, and of the
# programs that tests start, look less often.
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"
os.environ["DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL"] = "500ms"
os.environ["DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL"] = "2s"
dask.config.refresh()

forks.let_dask_fork()

HERE = Path(__file__).parent
kept_templates = KeptTemplates()
# Fixtures with a client of a cluster that is kept from one module to the next.
KEPT = ("shared_client", "train_client")


def pytest_configure() -> None:
    """Let the programs that tests interrupt be interrupted: a shell starts what it puts into the background deaf."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let tests that are for each night count as slow ones, which ``make test`` leaves out."""
    if item.get_closest_marker("nightly") is not None:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)  # when it is known which tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that share a cluster come together, those that want it fresh before the others.

    Files with many tests come before those with few, so that processes of tests end at about the same time.
    """
    sizes = Counter(item.path for item in items)
    fresh = {item.path for item in items if "fresh_cluster" in item.fixturenames}
    for item in items:
        if "keep_cluster" in item.fixturenames:
            _sharing[item.path] = next(name for name in KEPT if name in item.fixturenames)

    def place(item: pytest.Item) -> tuple[Any, ...]:
        if item.path.relative_to(HERE).parts[0] not in ("cluster", "docs"):
            return (0,)
        return 1, _sharing.get(item.path, ""), item.path not in fresh, -sizes[item.path], item.path

    items.sort(key=place)


@pytest.hookimpl(wrapper=True, trylast=True)  # while output is still captured
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the cluster that is kept where the next module has another, or none."""
    try:
        return (yield)
    finally:
        if nextitem is not None and _sharing.get(nextitem.path) != _kept_cluster.name:
            _kept_cluster.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import test modules, and with them frameworks, without garbage collections: they would find hardly any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave what has been imported by now out of garbage collections, of which tests make many.

    There is no collection before: imports leave hardly any garbage, and to look for it takes a second of a core.
    """
    gc.freeze()


# Dask keeps one thread for (de)serialising large messages until the end; pytest-timeout has one a test; gcsfs has one
# that closes connections, and lets others of asyncio's read files.
KEPT_THREADS = ("Dask-Offload", "pytest_timeout", "gcsfs-deferred-close", "asyncio_")


def wait_for(condition: Callable[[], Any], what: str | Callable[[], str], timeout_s: float = 90.0) -> Any:
    """Return the first true value of ``condition()``; fail with ``what``, or what that returns, after the time."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.01
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what() if callable(what) else what}: not within {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.1)  # who waits for long looks less often: what it waits for needs the processor
    return value


def in_threads(*functions: Callable[[], Any], timeout_s: float = 60.0) -> list[Any]:
    """What functions return that are called at the same time; raises what one raises, and fails where one hangs."""
    found: dict[int, tuple[Any, BaseException | None]] = {}

    def call(number: int) -> None:
        try:
            found[number] = (functions[number](), None)
        except BaseException as error:
            found[number] = (None, error)

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for _, error in sorted(found.items()):
        if error[1] is not None:
            raise error[1]
    assert len(found) == len(functions), f"{set(range(len(functions))) - set(found)} still go on after {timeout_s:g} s"
    return [found[number][0] for number in range(len(functions))]


@pytest.fixture(scope="session", name="in_threads")
def _in_threads() -> Callable[..., list[Any]]:
    return in_threads


@functools.cache
def _ports() -> Iterator[int]:
    """Ports below those that the kernel gives to whoever asks for any (``ip_local_port_range``), in turn."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [*range(10_000, first_given)]
    begin = os.getpid() * 7 % len(ports)  # another one in each process that runs tests
    return itertools.cycle(ports[begin:] + ports[:begin])


def free_port() -> int:
    """Find a port for a server that has to be told one: nobody else of this machine is given it before it is bound."""
    for port in _ports():
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError  # it goes on and on


@pytest.fixture(scope="session", name="free_port")
def _free_port() -> Callable[[], int]:
    return free_port


@pytest.fixture(scope="session")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, str]]:
    """Makes the certificate of a cluster with TLS, its own authority: ``ca_file``, ``cert`` and ``key``, as paths."""

    def make() -> dict[str, str]:
        folder = tmp_path_factory.mktemp("certificates")
        certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
        new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
        subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        return {"ca_file": certificate, "cert": certificate, "key": key}

    return make


@pytest.fixture(scope="session")
def photographs() -> None:
    """They are there; skips the test on machines that can't fetch a Debian package."""
    from dask_train.errors import DataError
    from readers import fetch_photographs

    try:
        fetch_photographs()
    except DataError as error:
        pytest.skip(f"There are no photographs: {error}")


# nbclient runs in a process of its own: jupyter_client leaves its event loops to the end of the interpreter.
EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

cells = [nbformat.v4.new_code_cell(code) for code in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=100, allow_errors=True).execute()
json.dump({"cells": [cell.outputs for cell in notebook.cells], "page": HTMLExporter().from_notebook_node(notebook)[0]},
          sys.stdout)
"""


def executed_notebook(cells: Sequence[str], folder: Path) -> tuple[list[list[dict[str, Any]]], str]:
    """The outputs of each cell of a notebook that is executed in a folder, and the whole of it as an HTML page."""
    ended = subprocess.run(
        [sys.executable, "-c", EXECUTE],
        cwd=folder,
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    return told["cells"], told["page"]


@pytest.fixture(scope="session", name="executed_notebook")
def _executed_notebook() -> Callable[..., Any]:
    return executed_notebook


def read_until(terminal: int, mark: bytes | None) -> bytes:
    """Read a terminal until it has shown what a pattern is found in, or (None) until no one has it open any more."""
    seen, deadline = b"", time.monotonic() + 30
    with selectors.DefaultSelector() as selector:
        selector.register(terminal, selectors.EVENT_READ)
        while mark is None or not re.search(mark, seen):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"not seen in 90 s, but {seen[-500:]!r}"
            if not selector.select(left_s):
                continue
            try:
                part = os.read(terminal, 65536)
            except OSError:  # Linux says EIO where the last writer has gone
                part = b""
            if not part:
                assert mark is None, f"the program ended before it showed {mark!r}: {seen!r}"
                break
            seen += part
    return seen


@pytest.fixture(scope="session", name="read_until")
def _read_until() -> Callable[[int, bytes | None], bytes]:
    return read_until


@pytest.fixture(scope="session", name="wait_for")
def _wait_for() -> Callable[..., Any]:
    return wait_for


def _children() -> dict[psutil.Process, str]:
    """Processes, by number and time of start: one that has just been started still has its parent's command line."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            found[child] = " ".join(child.cmdline()[-3:])
        except psutil.NoSuchProcess:
            continue
    return found


def _listening() -> set[int]:
    process = psutil.Process()
    connections = getattr(process, "net_connections", None) or process.connections  # its name before psutil 6
    return {c.laddr.port for c in connections(kind="tcp") if c.status == psutil.CONN_LISTEN}


def _threads() -> set[threading.Thread | str]:
    """Threads; the timer of a memory pool by its name, as it is set anew while an earlier test's pool lives."""
    found = {thread for thread in threading.enumerate() if not thread.name.startswith(KEPT_THREADS)}
    return {thread.name if thread.name == "dask-train-pool" else thread for thread in found}


def _files() -> set[tuple[str, str]]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # the listing's own
            continue
    return {file for file in found if int(file[0]) not in kept_templates.lifelines}


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail when what runs inside leaves processes, listening ports, threads or open files behind."""
    resource_tracker.ensure_running()  # multiprocessing's own helper process, which stays until the end
    gc.collect()
    gc.freeze()  # the collections that follow are of what is made inside: others cost half a second with all frameworks
    before = (_children(), _listening(), _threads(), _files())
    yield
    gc.collect()
    for what, old, look in zip(
        ("processes", "listening ports", "threads", "files"),
        before,
        (_children, _listening, _threads, _files),
        strict=True,
    ):
        wait_for(
            lambda old=old, look=look: not _new(look(), old),
            lambda what=what, old=old, look=look: f"{what} are gone: {_new(look(), old)}",
        )


def _new(now: Any, old: Any) -> Any:
    return {key: value for key, value in now.items() if key not in old} if isinstance(now, dict) else now - old


@functools.cache
def _scheduler_port() -> int:
    """Where schedulers of this process listen, one after the other: their Dask workers share templates by address."""
    return free_port()


class _OneAtATime:
    busy = False

    def __enter__(self) -> None:
        assert not self.busy, "a test with a cluster of its own belongs into a module without a shared one"
        self.busy = True

    def __exit__(self, *_: object) -> None:
        self.busy = False


_one_at_a_time = _OneAtATime()


@contextmanager
def local_clusters() -> Iterator[Callable[..., LocalCluster]]:
    """Make local clusters that are closed, and checked for what they leave behind, at the end.

    No two at a time: the connections of one come and go while the other is checked.
    """
    forks.ensure_running()
    with _one_at_a_time, no_leaks(), ExitStack() as stack:
        # Else Dask closes a nanny whose worker is gone in the moment 15 s after it was gone before.
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}))
        # Dask keeps methods of servers there that are closed, and so what a Dask worker in this process still had.
        stack.callback(distributed_core._expects_comm.cache_clear)
        ports = iter([_scheduler_port()])  # the first one's: the same as earlier clusters had

        def make(n_workers: int = 3, threads_per_worker: int = 1, **settings: Any) -> LocalCluster:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=threads_per_worker,
                    host=None if settings.get("processes") is False else "127.0.0.1",
                    scheduler_port=next(ports, 0),
                    dashboard_address="127.0.0.1:0",  # None means port 8787, which another cluster may have
                    **settings,
                )
            )
            stack.callback(kept_templates.keep)
            return cluster

        yield make


class _KeptCluster:
    """A client of a cluster that goes on from one module to the next, as it takes seconds to import what is trained."""

    def __init__(self) -> None:
        self.name = ""
        self._stack = ExitStack()
        self._client: Client | None = None
        self._num_failed = 0

    def get(self, name: str, num_failed: int, **settings: Any) -> Client:
        """The client of this name; after tests have failed, of a new cluster."""
        if (name, num_failed) != (self.name, self._num_failed):
            self.close()
        if self._client is None:
            with ExitStack() as stack:
                # Else Dask would let a worker go on that a test has paused.
                stack.enter_context(dask.config.set({"distributed.worker.memory.pause": False}))
                make = stack.enter_context(local_clusters())
                self._client = stack.enter_context(Client(make(**settings)))
                self._stack = stack.pop_all()
            self.name, self._num_failed = name, num_failed
        return self._client

    def close(self) -> None:
        """Close it, if there is one, and check what it leaves behind."""
        self.name, self._client = "", None
        self._stack.close()


_kept_cluster = _KeptCluster()
_sharing: dict[Path, str] = {}  # by file, the fixture with the client of the cluster that it shares


@pytest.fixture(scope="session")
def keep_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Makes the client of a cluster that is kept for other modules that have the same of ``KEPT``."""

    def keep(name: str, **settings: Any) -> Client:
        return _kept_cluster.get(name, request.session.testsfailed, **settings)

    yield keep
    _kept_cluster.close()


@pytest.fixture(scope="module")
def fresh_cluster() -> None:
    """The cluster that this module shares with others has not been used by an earlier one."""
    _kept_cluster.close()


@pytest.fixture(scope="session", name="no_leaks")
def _no_leaks() -> Callable[..., Any]:
    return no_leaks


@pytest.fixture(scope="session", name="local_clusters")
def _local_clusters() -> Callable[..., Any]:
    return local_clusters


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., LocalCluster]]:
    """Makes clusters of 3 processes with a thread each, or as it is told; they end with the test."""
    with local_clusters() as make:
        yield make


@pytest.fixture
def cluster(make_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """A cluster of 3 processes with a thread each."""
    return make_cluster()
