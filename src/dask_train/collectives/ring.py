"""What the first workers of all hosts do together: each passes parts of arrays on to the next, around a ring.

The all-reduce of Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009): of
``n`` bytes each of ``H`` hosts sends and receives ``2 n (H - 1) / H``, in ``2 (H - 1)`` turns.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TypeVar

import numpy as np

from dask_train.collectives.wire import PIECE_BYTES, Exact, Rounded, Wire
from dask_train.errors import LaunchError, StalledError
from dask_train.transport.array_layout import bytes_of
from dask_train.transport.channels import fill
from dask_train.transport.connections import Credentials, connected, greeted, listening
from dask_train.transport.reception import Reception

_Part = TypeVar("_Part")


class Ring:
    """A member of a ring of hosts; called with an array, which is then the sum over all of them.

    It broadcasts and gathers arrays, too.

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
    all of them to the last bit. That holds for rounded numbers, too: who has added up a part keeps what it sends.
    """

    def __init__(self, addresses: Sequence[str], place: int, credentials: Credentials, timeout_s: float) -> None:
        self._size, self._place, self._timeout_s = len(addresses), place, timeout_s
        self._exact, self._rounded = Exact(), Rounded()
        # A member that waits to be answered before it answers would wait for ever, in a ring; and later, one that
        # sends.
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

    def __call__(self, arrays: Sequence[np.ndarray], combine: np.ufunc = np.add, *, rounds: bool = False) -> None:
        """Sum arrays over all members, in place; to the last bit what a call for each of them makes.

        Parameters
        ----------
        arrays
            ``(n,)`` each, C-contiguous; of the same sizes and dtypes on all members.
        combine
            What takes the place of a sum, such as ``np.maximum``.
        rounds
            Whether numbers, of float32, travel as bfloat16: what each member adds to, and then the sum that all of
            them have. Default: false.

        Raises
        ------
        StalledError
            A neighbour did not come in time, or is gone.
        """
        parts = list(zip(*(self._cut(array) for array in arrays), strict=True))
        wire: Wire = self._rounded if rounds else self._exact
        with self._others_come():
            for turn in range(self._size - 1):
                sent = self._sender.submit(self._send, self._part(parts, -turn), wire)
                for part in self._part(parts, -turn - 1):
                    wire.add(self._before, part, combine)
                sent.result()
            self._pass_around(parts, 1, wire)

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Give one member's array to all, in place, piece by piece along the ring. As when called."""
        step = max(1, PIECE_BYTES // array.itemsize)
        distance = (self._place - root) % self._size
        with self._others_come():
            for first in range(0, len(array), step):
                piece = bytes_of(array[first : first + step])
                if distance > 0:
                    fill(self._before, piece)
                if distance < self._size - 1:
                    self._after.sendall(piece)

    def gather(self, array: np.ndarray, blocks: Sequence[Sequence[slice]]) -> None:
        """Give all members what each has, in place: the parts of the array listed by member. As when called."""
        with self._others_come():
            self._pass_around([[array[at] for at in its] for its in blocks], 0, self._exact)

    def _cut(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the part of an array that each member has the sum of first."""
        edges = [len(array) * number // self._size for number in range(self._size + 1)]
        return [array[first:stop] for first, stop in itertools.pairwise(edges)]

    def _pass_around(self, blocks: Sequence[Sequence[np.ndarray]], ahead: int, wire: Wire) -> None:
        """Let each block go once around, from the member that has it, whose place is as far ``ahead`` of the block."""
        for turn in range(self._size - 1):
            sent = self._sender.submit(self._send, self._part(blocks, ahead - turn), wire)
            for block in self._part(blocks, ahead - turn - 1):
                wire.receive(self._before, block)
            sent.result()

    def _send(self, blocks: Sequence[np.ndarray], wire: Wire) -> None:
        for block in blocks:
            wire.send(self._after, block)

    @contextmanager
    def _others_come(self) -> Iterator[None]:
        """Return an error of ours that names the members that did not come."""
        try:
            yield
        except TimeoutError as error:
            raise StalledError(
                f"Workers of other hosts did not come to a sum within {self._timeout_s:g} s.",
                "One hangs, or it is much slower than the others.",
                "See what they do with run.diagnose(), or raise train.progress.timeout.",
            ) from error
        except (EOFError, OSError) as error:
            raise StalledError(f"A worker of another host is gone: {type(error).__name__}: {error}.") from error

    def _part(self, parts: Sequence[_Part], shift: int) -> _Part:
        return parts[(self._place + shift) % self._size]

    def close(self) -> None:
        """Leave the ring."""
        for connection in (self._before, self._after):
            connection.close()
        self._sender.shutdown()


def _hang_up(dialling: Future[socket.socket]) -> None:
    if not dialling.exception():
        dialling.result().close()


def _accepted(address: str, credentials: Credentials, timeout_s: float) -> socket.socket:
    """Return the connection of the member before; others that connect are rejected."""
    with closing(Reception(listening(address), partial(greeted, credentials=credentials, listens=True))) as reception:
        try:
            return reception.next(timeout_s)
        except TimeoutError:
            raise LaunchError(
                f"No worker of another host has come to {address} within {timeout_s:g} s.",
                "It may not have started, or a firewall is between the hosts.",
                "Look at its output; let Dask workers reach each other on all ports.",
            ) from None
