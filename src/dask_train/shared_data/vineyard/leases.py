"""Leases: objects that refer to what is read, so that Vineyard does not free it meanwhile.

Vineyard frees an object's memory when the object is deleted, even if it is mapped: readers would see the bytes
of the next object in the same place. It spares what another object refers to, unless with ``force=True``. So a small
object of ours refers to each partition for as long as a segment lies in it.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from contextlib import suppress
from typing import Any

from dask_train.shared_data.vineyard.daemon import Daemon, import_vineyard, vineyard_error

TYPE_NAME = "dask_train::Lease"
# Most leases of dead processes that are looked for at a time.
MOST_LEASES = 10_000
# How long the thread that deletes leases waits for the next.
IDLE_S = 0.2


class Lease:
    """Keeps an object of a daemon for as long as this one is there; what is left of a killed process, the next frees.

    Parameters
    ----------
    daemon
        Where it is.
    lent
        Vineyard's object, which lies in the memory of that daemon.
    """

    def __init__(self, daemon: Daemon, lent: Any) -> None:
        meta = import_vineyard().ObjectMeta()
        meta["typename"] = TYPE_NAME
        meta["nbytes"] = 0
        meta["process_"] = _process(os.getpid())
        meta.add_member("held", lent)
        lease = daemon.client.create_metadata(meta)
        # Vineyard's client must not be called by the garbage collector, which may run within another call of it.
        weakref.finalize(self, _endings.add, daemon, lease.id).atexit = False


def end_leases_of_the_dead(daemon: Daemon) -> None:
    """Delete leases of processes of this host's process namespace that are no more."""
    with suppress(vineyard_error()):
        for meta in daemon.client.list_metadatas(TYPE_NAME, limit=MOST_LEASES, nobuffer=True):
            namespace, pid, _ = str(meta["process_"]).split()
            if namespace == _namespace() and meta["process_"] != _process(int(pid)):
                _delete(daemon, meta.id)


class _Endings:
    """Deletes leases in a thread of its own, which ends when it has nothing to do."""

    def __init__(self) -> None:
        self._ended: queue.SimpleQueue[tuple[Daemon, Any]] = queue.SimpleQueue()  # its put() may interrupt itself
        self._runs = False

    def add(self, daemon: Daemon, lease: Any) -> None:
        self._ended.put((daemon, lease))
        if not self._runs:  # two threads do no harm
            self._runs = True
            threading.Thread(target=self._run, name="dask-train-vineyard-leases", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                daemon, lease = self._ended.get(timeout=IDLE_S)
            except queue.Empty:
                self._runs = False
                if self._ended.empty():
                    return
            else:
                _delete(daemon, lease)


_endings = _Endings()


def _delete(daemon: Daemon, lease: Any) -> None:
    with suppress(vineyard_error()):  # the daemon is gone, and the lease with it
        daemon.client.delete(lease, deep=False)


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]")


def _process(pid: int) -> str:
    """Return the identity of a process where numbers are the same: its namespace, number and start."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            started = stat.read().rpartition(")")[2].split()[19]
    except OSError:
        started = "gone"
    return f"{_namespace()} {pid} {started}"
