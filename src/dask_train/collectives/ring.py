"""What the first workers of all hosts do together: each passes parts of arrays on to the next, around a ring.

The all-reduce of Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009): of
``n`` bytes each of ``H`` hosts sends and receives ``2 n (H - 1) / H``, in ``2 (H - 1)`` turns.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TypeVar

import numpy as np

from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.wire import PIECE_BYTES, Exact, Rounded, Wire
from dask_train.errors import LaunchError, StalledError
from dask_train.transport.array_layout import bytes_of
from dask_train.transport.channels import exactly, fill
from dask_train.transport.connections import Credentials, connected, greeted, listening
from dask_train.transport.reception import Reception

_Part = TypeVar("_Part")
_LENGTH = struct.Struct("<Q")
# How often a member that waits for its neighbours looks whether it still has to.
_LOOK_S = 0.1
# A connection ends with its process; the run tells of it a moment later.
_TOLD_S = 5.0


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
    look
        Called again and again while this waits for others; what it raises ends the wait. With it, a neighbour that is
        gone is a loss that others will replace: ``PeerLostError``. Default: None, nothing is called.

    Raises
    ------
    LaunchError
        They did not come, or do not know the run.

    Notes
    -----
    Each part of an array is added up on one way around the ring and then passed on as it is, so the sum is the same on
    all of them to the last bit. That holds for rounded numbers, too: who has added up a part keeps what it sends.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        place: int,
        credentials: Credentials,
        timeout_s: float,
        *,
        look: Callable[[], object] | None = None,
    ) -> None:
        self._size, self._place, self._timeout_s, self._look = len(addresses), place, timeout_s, look
        self._exact, self._rounded = Exact(), Rounded()
        # A member that waits to be answered before it answers would wait for ever, in a ring; and later, one that
        # sends.
        self._sender = ThreadPoolExecutor(1, "dask-train-ring")
        after = addresses[(place + 1) % len(addresses)]
        dialling = self._sender.submit(connected, after, credentials, timeout_s, look)
        with ExitStack() as undone:
            undone.callback(self._sender.shutdown, wait=False)
            undone.callback(dialling.add_done_callback, _hang_up)
            before = undone.enter_context(self._accepted(addresses[place], credentials))
            self._after = self._dialled(dialling)
            undone.pop_all()
        before.settimeout(timeout_s if look is None else _LOOK_S)
        self._before = _Incoming(before, timeout_s, look)
        self._after.settimeout(timeout_s)

    def _accepted(self, address: str, credentials: Credentials) -> socket.socket:
        """Return the connection of the member before; others that connect are rejected."""
        greet = partial(greeted, credentials=credentials, listens=True)
        deadline = time.monotonic() + self._timeout_s
        with closing(Reception(listening(address), greet)) as reception:
            while True:
                left_s = deadline - time.monotonic()
                try:
                    return reception.next(left_s if self._look is None else min(left_s, _LOOK_S))
                except TimeoutError:
                    if self._look is not None and left_s > _LOOK_S:
                        self._look()
                        continue
                    raise LaunchError(
                        f"No worker of another host has come to {address} within {self._timeout_s:g} s.",
                        "It may not have started, or a firewall is between the hosts.",
                        "Look at its output; let Dask workers reach each other on all ports.",
                    ) from None

    def _dialled(self, dialling: Future[socket.socket]) -> socket.socket:
        try:
            self._until(dialling)
        except LaunchError:
            told_by = time.monotonic() + _TOLD_S
            while self._look is not None and time.monotonic() < told_by:
                self._look()
                time.sleep(_LOOK_S)
            raise
        return dialling.result()

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
                self._until(sent)
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
                    self._until(self._sender.submit(self._after.sendall, piece))

    def meet(self) -> None:
        """Wait until all members have come here. As when called."""
        self.gather(np.zeros(self._size, np.uint8), [[slice(place, place + 1)] for place in range(self._size)])

    def pass_on(self, data: bytes) -> bytes:
        """Send data to the member after this one, and return what the one before has sent. As when called."""
        with self._others_come():
            sent = self._sender.submit(self._after.sendall, _LENGTH.pack(len(data)) + data)
            (size,) = _LENGTH.unpack(exactly(self._before, _LENGTH.size))
            received = bytes(exactly(self._before, size))
            self._until(sent)
        return received

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
            self._until(sent)

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
            if self._look is not None:
                raise PeerLostError from error
            raise StalledError(f"A worker of another host is gone: {type(error).__name__}: {error}.") from error

    def _until(self, done: Future[_Part]) -> None:
        """Wait for what the other thread does."""
        while True:
            try:
                done.result(None if self._look is None else _LOOK_S)
                return
            except TimeoutError:
                if done.done():
                    done.result()
                    return
                assert self._look is not None
                self._look()

    def _part(self, parts: Sequence[_Part], shift: int) -> _Part:
        return parts[(self._place + shift) % self._size]

    def close(self) -> None:
        """Leave the ring."""
        for connection in (self._before.connection, self._after):
            with suppress(OSError):  # it is gone
                connection.shutdown(socket.SHUT_RDWR)  # wakes the other thread, if it still sends
            connection.close()
        self._sender.shutdown()


class _Incoming:
    """A connection that is read from, which looks meanwhile whether what is read still comes.

    Parameters
    ----------
    connection
        Its timeout is how often this looks.
    timeout_s, look
        As of :class:`Ring`.
    """

    def __init__(self, connection: socket.socket, timeout_s: float, look: Callable[[], object] | None) -> None:
        self.connection, self._timeout_s, self._look = connection, timeout_s, look

    def recv_into(self, room: memoryview) -> int:
        """Read into a part of the room; its size.

        Raises
        ------
        TimeoutError
            Nothing has come in time.
        """
        try:
            return self.connection.recv_into(room)
        except TimeoutError:
            if self._look is None:
                raise
        deadline = time.monotonic() + self._timeout_s - _LOOK_S
        while True:
            self._look()
            try:
                return self.connection.recv_into(room)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise


def _hang_up(dialling: Future[socket.socket]) -> None:
    if not dialling.exception():
        dialling.result().close()
