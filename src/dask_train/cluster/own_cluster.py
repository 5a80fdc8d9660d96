"""What a cluster that this very program started is kept from, for as long as a run or a network is on it.

A ``LocalCluster`` shares the program's terminal, and it gives up Dask workers that leave: both would end Dask workers,
and data, that are needed or just restarting. A cluster that was started elsewhere is left alone.

A terminal sends SIGINT to the whole process group, so Ctrl-C would end the Dask workers before the program can close
anything in order. While a network or a run lasts, those in the client's own process group ignore it; the program gets
its KeyboardInterrupt and decides.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config

from dask_train.cluster.peer import Peer
from dask_train.errors import DaskTrainError

# A cluster looks this long after each loss whether a Dask worker of that name is back, and else closes its nanny. When
# it looks while that worker restarts for another reason, it closes a healthy one (seen: 15 s after one network's
# close, in the middle of the next one's), so it is set to look much later.
_PATIENCE = "distributed.deploy.lost-worker-timeout"
_LONG = "1 hour"

# How long a Dask worker whose event loop is busy is waited for; it gets the message anyway.
BUSY_S = 1.0

_num_up = 0
_patience_before = ""
# Of a Dask worker: what SIGINT did before it was ignored.
_previous: list[object] = []


class Shield:
    """Keeps what carries a network, or a run, from the terminal's Ctrl-C, and lets the cluster be patient.

    Parameters
    ----------
    is_up
        Whether another one was put up that this one takes down.
    """

    def __init__(self, peer: Peer, *, is_up: bool = False) -> None:
        self._peer, self._is_up = peer, is_up

    async def up(self) -> None:
        """Put it up; counted, so that the last one that is taken down ends it."""
        global _num_up, _patience_before  # noqa: PLW0603 - dask.config is as global
        if self._is_up or self._peer.dask_end.cluster is None:
            return
        if _num_up == 0:
            _patience_before = dask.config.get(_PATIENCE)
            dask.config.set({_PATIENCE: _LONG})
        _num_up += 1
        self._is_up = True
        await _tell_all(self._peer, ignore_interrupts, this_boot(), os.getpgrp(), os.getpid())

    async def down(self) -> None:
        """Take it down, if it is up, on the Dask workers that are still the same processes."""
        global _num_up  # noqa: PLW0603
        if not self._is_up or self._peer.dask_end.cluster is None:
            return
        self._is_up = False
        _num_up -= 1
        if _num_up == 0:
            dask.config.set({_PATIENCE: _patience_before})
        await _tell_all(self._peer, heed_interrupts)


async def _tell_all(peer: Peer, function: Callable[..., Any], *args: Any) -> None:
    """Inform all; those that are gone need not know, and those that are busy read it later."""
    with suppress(OSError, DaskTrainError, TimeoutError):
        await asyncio.wait_for(peer.on_workers(function, *args, on_error="ignore"), BUSY_S)


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
