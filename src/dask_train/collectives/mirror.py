"""What is a rank's own, written into the memory that the ranks of a host share: it outlives the rank's process.

Between hosts the first rank of each passes the mirrors of its host on to the next one. So they outlive all processes
of a host.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable

from dask_train.collectives.shared_memory import FILE_BYTES, SharedMemory

# A mirror larger than this costs more of a step than it may; the rank is then not replaced.
MOST_BYTES = 16 << 20
_HEAD = struct.Struct("<qq")  # the border's number plus one, so that zeros are none; bytes that follow
_SLOT_BYTES = MOST_BYTES + 4096
_BEGIN = FILE_BYTES // 2  # channels lie far below; the file is sparse


class Mirrors:
    """The states of ranks at the last two borders: of those of a host, and of the host before it.

    Two, since the next one is written while the last one may still be needed.

    Parameters
    ----------
    memory
        The file that the ranks of a host share; where a rank is lost, the others read what it has written.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def put(self, rank: int, border: int, state: bytes | None) -> None:
        """Write a rank's state at a border; none if it can't be mirrored, or has over :data:`MOST_BYTES`."""
        at = self._place(rank, border)
        self._memory.write(at, _HEAD.pack(0, 0))
        if state is not None and len(state) <= MOST_BYTES:
            self._memory.write(at + _HEAD.size, state)
            self._memory.write(at, _HEAD.pack(border + 1, len(state)))

    def read(self, rank: int, border: int) -> bytes | None:
        """Return the state of a rank at a border; None if there is none."""
        at = self._place(rank, border)
        stamp, size = _HEAD.unpack(self._memory.read(at, _HEAD.size))
        return self._memory.read(at + _HEAD.size, size) if stamp == border + 1 else None

    def packed(self, ranks: Iterable[int], borders: Iterable[int]) -> bytes:
        """Return the states of ranks at borders, for the memory of another host."""
        told = sorted(borders)
        return pickle.dumps([(rank, border, self.read(rank, border)) for rank in ranks for border in told], protocol=5)

    def put_packed(self, packed: bytes) -> None:
        """Write what :meth:`packed` has returned on another host."""
        for rank, border, state in pickle.loads(packed):  # noqa: S301 - of a worker of this run
            self.put(rank, border, state)

    @staticmethod
    def _place(rank: int, border: int) -> int:
        return _BEGIN + (2 * rank + border % 2) * _SLOT_BYTES
