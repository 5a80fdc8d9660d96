"""Boards: numbered rings of small values that every role may append to and anyone may follow.

A Dask topic forgets after 1,000 events and numbers nothing, so a reader can't tell what it missed; a ring's numbers
can. Values are opaque bytes here: the scheduler never unpickles what users put on a board.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable

from dask_train.scheduler.watched import Watched


class RingBuffer(Watched):
    """The last ``maxlen`` values of one board, each with its number, counted from 0.

    ``id`` tells a ring from one of the same name that was deleted before; ``networks`` are those whose Dask workers
    opened it.
    """

    def __init__(self, maxlen: int) -> None:
        super().__init__()
        self.id = uuid.uuid4().hex
        self.values: deque[bytes] = deque(maxlen=maxlen)
        self.count = 0
        self.networks: set[str] = set()

    def append(self, values: Iterable[bytes]) -> None:
        for value in values:
            self.values.append(value)
            self.count += 1
        self.wake()

    def since(self, number: int, most: int) -> tuple[int, list[bytes]]:
        """Return the last ``most`` values from ``number`` on that are kept, and the number of the first one."""
        first = max(number, self.count - min(len(self.values), most))
        return first, list(self.values)[first - self.count + len(self.values) :] if first < self.count else []


class Boards:
    """All boards of a scheduler, by name. They live until they are deleted, like Dask's Variables."""

    def __init__(self) -> None:
        self.rings: dict[str, RingBuffer] = {}

    def ring(self, name: str, maxlen: int) -> RingBuffer:
        """Return the ring of that name, made if there is none.

        A longer ``maxlen`` than before makes room; a shorter one makes that reader see fewer.
        """
        ring = self.rings.get(name)
        if ring is None:
            ring = self.rings[name] = RingBuffer(maxlen)
        if maxlen > (ring.values.maxlen or 0):
            ring.values = deque(ring.values, maxlen=maxlen)
        return ring

    def delete(self, name: str) -> None:
        ring = self.rings.pop(name, None)
        if ring is not None:
            ring.wake()

    def wake_all(self) -> None:
        """Wake all who wait on a board: a network was lost or closed, and they may be waiting for it."""
        for ring in self.rings.values():
            ring.wake()
