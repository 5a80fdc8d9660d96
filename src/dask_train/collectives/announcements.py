"""What each rank announces to all others as a call begins: which call it is, and what of it is small."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dask_train.collectives.process_group import ProcessGroup

# Of a rank's page. What is no larger than its payload goes with it, which takes one wait instead of three.
PAGE_BYTES = 4096
_HEAD = struct.Struct("<16sIHH")  # the digest of the call, bytes of the payload, bytes of the text, whether it has left
_TEXT_BYTES = 512 - _HEAD.size
_PAYLOAD = 512
PAYLOAD_BYTES = PAGE_BYTES - _PAYLOAD


@dataclass(frozen=True)
class CollectiveCall:
    """A call, as all ranks have to make it.

    Attributes
    ----------
    text
        What was called, with all that has to be the same on all ranks.
    """

    text: str
    digest: bytes = field(init=False, repr=False)
    shown: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        encoded = self.text.encode()
        object.__setattr__(self, "digest", hashlib.blake2b(encoded, digest_size=16).digest())
        shown = encoded if len(encoded) <= _TEXT_BYTES else encoded[: _TEXT_BYTES - 3] + b"..."
        object.__setattr__(self, "shown", shown)


class Announcements:
    """A page of each rank that all ranks read.

    There are two of each, used in turn: a rank that writes the second has seen that all have come to it, so all are
    through with the first.

    Parameters
    ----------
    group
        The ranks.
    names
        What errors call them.
    """

    def __init__(self, group: ProcessGroup, names: Sequence[str]) -> None:
        self._group, self._names = group, names
        self._places = [slice(rank * PAGE_BYTES, (rank + 1) * PAGE_BYTES) for rank in range(group.size)]
        self._channels = [group.channel([(group.size * PAGE_BYTES,)], np.uint8) for _ in range(2)]
        self._pages = [channel.total.data for channel in self._channels]
        self._mine = np.zeros(PAGE_BYTES, np.uint8)
        self._page = self._mine.data
        self._turn = 0

    def exchange(self, call: CollectiveCall, payload: Sequence[np.ndarray] = ()) -> list[memoryview]:
        """Announce a call to all ranks, and check that it is theirs, too.

        Parameters
        ----------
        call
            The call.
        payload
            Bytes that go with it, uint8 ``(n,)`` each, :data:`PAYLOAD_BYTES` at most.

        Returns
        -------
        list of memoryview
            What each rank has sent along, good until the next exchange but one.

        Raises
        ------
        ValueError
            Another rank has made another call, or has returned.
        StalledError
            Another rank did not come in time.
        """
        stop = _PAYLOAD
        for part in payload:
            self._mine[stop : stop + len(part)] = part
            stop += len(part)
        self._write(call, stop - _PAYLOAD)
        pages = self._pages[self._turn]
        self._group.exchange(
            self._channels[self._turn], self._mine, self._places, lambda: self._see_leader(call, pages)
        )
        self._turn = 1 - self._turn
        return self._check(call, pages)

    def leave(self) -> None:
        """Tell the others, in a last message, that this rank makes no more calls."""
        self._write(CollectiveCall(""), 0, left=True)
        self._channels[self._turn].total[self._places[self._group.rank]] = self._mine
        self._group.leave()

    def _write(self, call: CollectiveCall, payload_bytes: int, *, left: bool = False) -> None:
        _HEAD.pack_into(self._page, 0, call.digest, payload_bytes, len(call.shown), left)
        self._page[_HEAD.size : _HEAD.size + len(call.shown)] = call.shown

    def _see_leader(self, call: CollectiveCall, pages: memoryview) -> None:
        """One that has left brings no pages of other hosts; what else differs is seen when all are there."""
        leader = self._group.leader
        if _HEAD.unpack_from(pages[self._places[leader]])[3]:
            raise self._has_left(call, leader)

    def _has_left(self, call: CollectiveCall, rank: int) -> ValueError:
        return ValueError(
            f"{self._names[self._group.rank]} calls {call.text}, and {self._names[rank]} has returned: it takes part "
            "in no call any more. All training roles make the same calls, in the same order, as often."
        )

    def _check(self, call: CollectiveCall, pages: memoryview) -> list[memoryview]:
        payloads = []
        for rank in range(self._group.size):
            page = pages[self._places[rank]]
            digest, size, shown, left = _HEAD.unpack_from(page)
            if left:
                raise self._has_left(call, rank)
            if digest != call.digest:
                theirs = bytes(page[_HEAD.size : _HEAD.size + shown]).decode(errors="replace")
                raise ValueError(
                    f"{self._names[self._group.rank]} calls {call.text}, and {self._names[rank]} calls {theirs}. All "
                    "training roles make the same calls in the same order, with arrays of the same dtypes and shapes."
                )
            payloads.append(page[_PAYLOAD : _PAYLOAD + size])
        return payloads
