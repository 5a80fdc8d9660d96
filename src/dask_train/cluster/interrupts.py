"""Dask workers of a local cluster that outlive a Ctrl-C meant for the program that uses them.

A terminal sends SIGINT to the whole process group, so Ctrl-C in a program with a ``LocalCluster`` ends the Dask
workers, and the data with them, before the program can close anything in order. While a network runs, those in the
client's own process group ignore it; the program gets its KeyboardInterrupt and decides.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

_previous: list[object] = []


def this_boot() -> str:
    """Name the running kernel, so that process ids of two hosts are not confused."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def ignore_interrupts(boot: str, process_group: int, client_pid: int) -> bool:
    """Ignore SIGINT where it would come from the client's terminal; whether this Dask worker does so now.

    Runs on the Dask worker's event loop, which is the main thread of a worker process: only there can a signal's
    handler be set. A cluster inside the client's own process is left alone.
    """
    shares_terminal = this_boot() == boot and os.getpgrp() == process_group and os.getpid() != client_pid
    if shares_terminal and threading.current_thread() is threading.main_thread():
        _previous.append(signal.signal(signal.SIGINT, signal.SIG_IGN))
        return True
    return False


def heed_interrupts() -> None:
    """Undo one :func:`ignore_interrupts`."""
    if _previous and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _previous.pop())  # type: ignore[arg-type]
