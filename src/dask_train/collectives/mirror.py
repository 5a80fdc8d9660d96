"""What is a rank's own, written into the memory that the ranks of a host share: it outlives the rank's process.

Between hosts the first rank of each passes the mirrors of its host on to the next one, or to all before ranks leave. So
they outlive all processes of a host.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from hashlib import blake2b
from itertools import product

from dask_train.collectives.shared_memory import FILE_BYTES, SharedMemory

# A mirror larger than this costs more of a step than it may; the rank is then not replaced.
MOST_BYTES = 16 << 20
_HEAD = struct.Struct("<qq")  # the border's number plus one, so that zeros are none; bytes that follow
_SLOT_BYTES = MOST_BYTES + 4096
_BEGIN = FILE_BYTES // 2  # channels lie far below; the file is sparse


class Mirrors:
    """The states of ranks at the last two borders: of those of a host, and of the host before it, or of all hosts.

    Two, since the next one is written while the last one may still be needed.

    Parameters
    ----------
    memory
        The file that the ranks of a host share; where a rank is lost, the others read what it has written.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._passed: dict[tuple[int, int], bytes] = {}  # digests of what the next host has, by rank and border

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
        head = self._memory.read(at, _HEAD.size)
        stamp, size = _HEAD.unpack(head)
        if stamp != border + 1:
            return None
        state = self._memory.read(at + _HEAD.size, size)
        # One that counts as lost may live, and write the state of the border after the next into the same slot.
        return state if self._memory.read(at, _HEAD.size) == head else None

    def news(self, ranks: Iterable[int], borders: Iterable[int]) -> bytes:
        """Return the states of ranks at borders, for the memory of the next host, without those that it has."""
        entries = []
        for rank, border in product(ranks, sorted(borders)):
            state = self.read(rank, border)
            digest = b"" if state is None else blake2b(state, digest_size=16).digest()
            if self._passed.get((rank, border)) != digest:
                self._passed[rank, border] = digest
                self._passed.pop((rank, border - 2), None)  # which had the same slot
                entries.append((rank, border, state))
        return pickle.dumps(entries, protocol=5)

    def put_packed(self, packed: bytes) -> None:
        """Write what :meth:`news` has returned on another host."""
        for rank, border, state in pickle.loads(packed):  # noqa: S301 - of a worker of this run
            self.put(rank, border, state)

    @staticmethod
    def _place(rank: int, border: int) -> int:
        return _BEGIN + (2 * rank + border % 2) * _SLOT_BYTES
