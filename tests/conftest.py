"""What all tests share: waiting for a condition, and clusters of real processes that leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any

import psutil
import pytest
from distributed import LocalCluster


def pytest_configure() -> None:
    """Let the programs that tests interrupt be interrupted: a shell starts what it puts into the background deaf."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Dask keeps one thread for (de)serialising large messages until the end; pytest-timeout has one a test.
KEPT_THREADS = ("Dask-Offload", "pytest_timeout")


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """The first true value of ``condition()``; fails with ``what`` when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.01)
    return value


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
    from dask_train.datasets import fetch_photographs
    from dask_train.errors import DataError

    try:
        fetch_photographs()
    except DataError as error:
        pytest.skip(f"There are no photographs: {error}")


@pytest.fixture(scope="session", name="wait_for")
def _wait_for() -> Callable[..., Any]:
    return wait_for


def _children() -> dict[int, str]:
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            found[child.pid] = " ".join(child.cmdline()[-3:])
        except psutil.NoSuchProcess:
            continue
    return found


def _listening() -> set[int]:
    return {c.laddr.port for c in psutil.Process().net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN}


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(KEPT_THREADS)}


def _files() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail when what runs inside leaves processes, listening ports, threads or open files behind."""
    resource_tracker.ensure_running()  # multiprocessing's own helper process, which stays until the end
    gc.collect()
    before = (_children(), _listening(), _threads(), _files())
    yield
    gc.collect()
    for what, old, look in zip(
        ("processes", "listening ports", "threads", "files"),
        before,
        (_children, _listening, _threads, _files),
        strict=True,
    ):
        wait_for(lambda old=old, look=look: not _new(look(), old), f"{what} are gone: {_new(look(), old)}")


def _new(now: Any, old: Any) -> Any:
    return {k: v for k, v in now.items() if old.get(k) != v} if isinstance(now, dict) else now - old


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
    with _one_at_a_time, no_leaks(), ExitStack() as stack:

        def make(n_workers: int = 3, threads_per_worker: int = 1, **settings: Any) -> LocalCluster:
            return stack.enter_context(
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=threads_per_worker,
                    host=None if settings.get("processes") is False else "127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # None means port 8787, which another cluster may have
                    **settings,
                )
            )

        yield make


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
