"""Runs on real Dask workers, with real role processes; each test leaves the cluster as it found it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, WorkerPlugin

from dask_train.data.pool import process_pool


def _templates(dask_worker: Any = None) -> dict[int, str]:
    """Templates of a Dask worker, by their processes."""
    templates = dask_worker.plugins.get("dask-train-templates") if dask_worker is not None else None
    return templates.pids() if templates is not None else {}


def _belongings(shared: set[int], dask_worker: Any = None) -> dict[str, Any]:
    """What a Dask worker has that a run might leave there, besides templates that some share."""
    gc.collect()
    process = psutil.Process()
    kept = _templates(dask_worker)  # they are the Dask worker's, and end with it
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        files.append(name if name.startswith("/memfd:") else name.partition(":")[0])  # without a socket's number
    for name in ("anon_inode", "pipe") * len(kept):  # a template's pidfd and lifeline
        files.remove(name)
    return {
        # One that this Dask worker has started, and others use, stays its child.
        "children": sorted(child.pid for child in process.children(recursive=True) if child.pid not in shared),
        # Sockets come and go with Dask's own connections.
        "files": sorted(name for name in files if name != "socket"),
        # The pool starts its threads when it needs them; that of an agent, which has seceded, must not stay.
        "threads": max(2, sum(t.name.startswith("Dask-Default-Threads") for t in threading.enumerate())),
        "runs": sorted(getattr(dask_worker, "train_agents", {})),
    }


@pytest.fixture(scope="module")
def train_client(keep_cluster: Callable[..., Client]) -> Client:
    """A client of 2 processes with 2 threads each, for tests of several modules."""
    client = keep_cluster("train_client", n_workers=2, threads_per_worker=2)
    client.register_plugin(_KeepLittle())
    client.run(_pass_over_what_is_there)  # with what earlier modules have imported
    return client


def _pass_over_what_is_there() -> None:
    """Let garbage collections, of which each test makes several to see what is left, go through newer objects only."""
    gc.collect()
    gc.freeze()


class _KeepLittle(WorkerPlugin):
    """Shared memory that is free goes back at once, so that each test can see that it does; also when restarted."""

    name = "keep-little"

    def setup(self, worker: Any) -> None:
        process_pool().keep_warm_s = 0.05
        _pass_over_what_is_there()


@pytest.fixture
def client(
    train_client: Client, state: Callable[[Client], dict[str, Any]], wait_for: Callable[..., Any]
) -> Iterator[Client]:
    """The shared client; fails when a test leaves a run, a process, a file or a task behind, or a Dask worker less."""

    def has_no_result() -> bool:
        if not train_client.sync(train_client.scheduler.who_has):
            return True
        gc.collect()  # an error's traceback may hold futures in a cycle
        return False

    def belongings() -> dict[str, Any]:
        shared = set().union(*train_client.run(_templates).values())
        return train_client.run(_belongings, shared)

    def settled() -> None:
        wait_for(lambda: len(train_client.run(os.getpid)) == 2, "two Dask workers")
        wait_for(lambda: state(train_client)["runs"] == (), "the scheduler has no run")
        wait_for(has_no_result, "the scheduler has no result")

    settled()
    # What a fixture of the whole module ran may still be on its way out.
    wait_for(lambda: not any("/memfd:" in str(found["files"]) for found in belongings().values()), "memory")
    before = belongings()
    yield train_client
    settled()

    def differing() -> dict[str, Any]:
        now = belongings()
        return {a: (before[a], found) for a, found in now.items() if a in before and found != before[a]}

    wait_for(lambda: not differing(), lambda: f"what a run left on Dask workers: {differing()}")


@pytest.fixture(scope="module")
def metrics_in_templates() -> Iterator[None]:
    """Workers of torch modules are forked of templates with torchmetrics, which else takes each 2 s of a core."""
    with dask.config.set({"train.template.imports": ["torchmetrics"]}):
        yield


@pytest.fixture
def until(wait_for: Callable[..., Any]) -> Callable[..., Any]:
    """Waits until a run has some scores, and returns its roles' state by (role, rank)."""

    def wait(run: Any, num_scores: int = 1) -> dict[tuple[str, int], dict[str, Any]]:
        wait_for(lambda: run.status()["num_scores"] >= num_scores, f"{num_scores} scores")
        return {(role["role"], role["rank"]): role for role in run.status()["roles"]}

    return wait


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(name="is_alive", scope="session")
def _is_alive() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A memory cgroup of 300 MB for a Dask worker and its roles; stands for a container with a limit."""
    version_1 = Path("/sys/fs/cgroup/memory")
    root = version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")
    folder = root / f"dask-train-test-{os.getpid()}"
    try:
        folder.mkdir()
        limit = folder / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")
        limit.write_text(str(300 << 20))
    except OSError as error:
        pytest.skip(f"memory cgroups can't be made here: {error}")
    yield folder
    folder.rmdir()
