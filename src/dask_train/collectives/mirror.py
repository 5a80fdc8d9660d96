"""What is a rank's own, written into the memory that the ranks of a host share: it outlives the rank's process."""

from __future__ import annotations

import struct

from dask_train.collectives.shared_memory import FILE_BYTES, SharedMemory

# A mirror larger than this costs more of a step than it may; the rank is then not replaced.
MOST_BYTES = 16 << 20
_HEAD = struct.Struct("<qq")  # the border's number plus one, so that zeros are none; bytes that follow
_SLOT_BYTES = MOST_BYTES + 4096
_BEGIN = FILE_BYTES // 2  # channels lie far below; the file is sparse


class Mirrors:
    """The states of all ranks of a host at the last two borders.

    Two, since the next one is written while the last one may still be needed.

    Parameters
    ----------
    memory
        The file that the ranks share; where a rank is lost, the others read what it has written.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def put(self, number: int, state: bytes | None) -> None:
        """Write this rank's state at a border; none if it can't be mirrored, or has over :data:`MOST_BYTES`."""
        at = self._place(self._memory.place, number)
        self._memory.write(at, _HEAD.pack(0, 0))
        if state is not None and len(state) <= MOST_BYTES:
            self._memory.write(at + _HEAD.size, state)
            self._memory.write(at, _HEAD.pack(number + 1, len(state)))

    def read(self, place: int, number: int) -> bytes | None:
        """Return the state of one rank of the host at a border; None if there is none."""
        at = self._place(place, number)
        stamp, size = _HEAD.unpack(self._memory.read(at, _HEAD.size))
        return self._memory.read(at + _HEAD.size, size) if stamp == number + 1 else None

    @staticmethod
    def _place(place: int, number: int) -> int:
        return _BEGIN + (2 * place + number % 2) * _SLOT_BYTES
