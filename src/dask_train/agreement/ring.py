"""Sums over the first workers of all hosts, each of which passes parts of arrays on to the next, around a ring.

The all-reduce of Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009): of
``n`` bytes each of ``H`` hosts sends and receives ``2 n (H - 1) / H``, in ``2 (H - 1)`` turns.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from dask_train.agreement.layout import bytes_of
from dask_train.agreement.lines import fill
from dask_train.agreement.network import Credentials, connected, greeted, listening
from dask_train.errors import LaunchError, StalledError

# What has come is added in pieces, which stay in the core's cache, while the rest is on its way.
_PIECE_BYTES = 1 << 18


class Ring:
    """One of its members; called with an array, which is then the sum over all of them.

    Parameters
    ----------
    addresses
        ``host:port`` of each member, where it listens while the ring is made.
    place
        Which of them this is.
    credentials
        What they know each other by.
    timeout_s
        How long others may take to come to the ring, and to a sum, in seconds.

    Raises
    ------
    LaunchError
        They did not come, or do not know the run.

    Notes
    -----
    Each part of an array is added up on one way around the ring and then passed on as it is, so the sum is the same on
    all of them to the last bit.
    """

    def __init__(self, addresses: Sequence[str], place: int, credentials: Credentials, timeout_s: float) -> None:
        self._size, self._place, self._timeout_s = len(addresses), place, timeout_s
        # Who waits to be answered before it answers would wait for ever, in a ring; and later, who sends.
        self._sender = ThreadPoolExecutor(1, "dask-train-ring")
        after = addresses[(place + 1) % len(addresses)]
        dialling = self._sender.submit(connected, after, credentials, timeout_s)
        with ExitStack() as undone:
            undone.callback(self._sender.shutdown, wait=False)
            undone.callback(dialling.add_done_callback, _hang_up)
            self._before = undone.enter_context(_accepted(addresses[place], credentials, timeout_s))
            self._after = dialling.result()
            undone.pop_all()
        for connection in (self._before, self._after):
            connection.settimeout(timeout_s)

    def __call__(self, array: np.ndarray) -> None:
        """Sum, in place.

        Parameters
        ----------
        array
            ``(n,)``, C-contiguous; of one size and dtype on all members.

        Raises
        ------
        StalledError
            A neighbour did not come in time, or is gone.
        """
        edges = [len(array) * number // self._size for number in range(self._size + 1)]
        parts = [array[first:stop] for first, stop in itertools.pairwise(edges)]
        scratch = np.empty(max(1, _PIECE_BYTES // array.itemsize), array.dtype)
        try:
            for turn in range(self._size - 1):
                sent = self._sender.submit(self._after.sendall, bytes_of(self._part(parts, -turn)))
                self._add(self._part(parts, -turn - 1), scratch)
                sent.result()
            for turn in range(self._size - 1):
                sent = self._sender.submit(self._after.sendall, bytes_of(self._part(parts, 1 - turn)))
                fill(self._before, bytes_of(self._part(parts, -turn)))
                sent.result()
        except TimeoutError as error:
            raise StalledError(
                f"Workers of other hosts did not come to a sum within {self._timeout_s:g} s.",
                "One hangs, or it is much slower than the others.",
                "See what they do with run.diagnose(), or raise train.progress.timeout.",
            ) from error
        except (EOFError, OSError) as error:
            raise StalledError(f"A worker of another host is gone: {type(error).__name__}: {error}.") from error

    def _part(self, parts: list[np.ndarray], shift: int) -> np.ndarray:
        return parts[(self._place + shift) % self._size]

    def _add(self, part: np.ndarray, scratch: np.ndarray) -> None:
        for first in range(0, len(part), len(scratch)):
            piece = part[first : first + len(scratch)]
            come = scratch[: len(piece)]
            fill(self._before, bytes_of(come))
            np.add(piece, come, out=piece)

    def close(self) -> None:
        """Leave it."""
        for connection in (self._before, self._after):
            connection.close()
        self._sender.shutdown()


def _hang_up(dialling: Future[socket.socket]) -> None:
    if not dialling.exception():
        dialling.result().close()


def _accepted(address: str, credentials: Credentials, timeout_s: float) -> socket.socket:
    """The connection of the member before; who else connects is sent away."""
    deadline = time.monotonic() + timeout_s
    with listening(address) as listener:
        while True:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise LaunchError(
                    f"No worker of another host has come to {address} within {timeout_s:g} s.",
                    "It may not have started, or a firewall is between the hosts.",
                    "Look at its output; let Dask workers reach each other on all ports.",
                ) from None
            try:
                return greeted(connection, credentials, listens=True)
            except (LaunchError, EOFError, OSError):
                continue
