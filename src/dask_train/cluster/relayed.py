"""Values of a client that a Dask worker can't reach: asked for by an event, answered by a call, both by the scheduler.

Each answer is a bounded piece, which the scheduler passes on and keeps nothing of.
"""

from __future__ import annotations

import asyncio
import hashlib
import queue
import weakref
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Worker

from dask_train.cluster.peer import Peer
from dask_train.errors import DataError
from dask_train.transport.served_values import PATIENCE_S, PIECE_BYTES, packed

# The value of a name and number; None if it is gone.
Find = Callable[[str, int], Any]
# A digest of a value's pickle, the lengths of its buffers, and a piece of these one after the other.
Piece = tuple[bytes, list[int], bytes]

# Clients that answer.
_relaying: weakref.WeakSet[Client] = weakref.WeakSet()
# In a Dask worker: what its tasks wait for, by the number of the question.
_waiting: dict[str, queue.SimpleQueue[Piece | None]] = {}


def relay(client: Client, find: Find) -> None:
    """Let a client answer Dask workers from now on."""
    if client in _relaying:
        return
    _relaying.add(client)
    answering = weakref.ref(client)

    def asked(event: tuple[float, dict[str, Any]]) -> None:
        if (own := answering()) is not None:
            peer = Peer(own)
            peer.spawn(partial(_answer, peer, find, event[1]))

    client.subscribe_topic(_topic(client.id), asked)


async def _answer(peer: Peer, find: Find, question: dict[str, Any]) -> None:
    value = find(question["name"], question["number"])
    piece = None if value is None else await asyncio.to_thread(_piece, value, question["start"])
    await peer.on_workers(_heard, question["id"], piece, workers=[question["worker"]], on_error="ignore")


def _piece(value: Any, start: int) -> Piece:
    """Return the piece that begins at a place; it ends with its buffer, or before."""
    buffers = packed(value)
    layout, lengths = hashlib.blake2b(buffers[0], digest_size=16).digest(), [buffer.nbytes for buffer in buffers]
    for buffer, end in zip(buffers, accumulate(lengths), strict=True):
        if start < end:
            within = start - (end - buffer.nbytes)
            return layout, lengths, bytes(buffer[within : within + PIECE_BYTES])
    return layout, lengths, b""


def _heard(question: str, piece: Piece | None) -> None:
    """Pass an answer to the task that waits for it; runs on the Dask worker."""
    if (waiting := _waiting.get(question)) is not None:
        waiting.put(piece)


def ask(worker: Worker, client: str, name: str, number: int) -> list[memoryview]:
    """Return the buffers of a value of a client; called in a task.

    Raises
    ------
    DataError
        The client does not have it any more, does not answer within a minute, or has changed it meanwhile.
    """
    layout, lengths, piece = _ask(worker, client, name, number, 0)
    room = np.empty(sum(lengths), np.uint8).data
    filled = 0
    while True:
        room[filled : filled + len(piece)] = piece
        filled += len(piece)
        if filled == len(room):
            ends = accumulate(lengths)
            return [room[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        *now, piece = _ask(worker, client, name, number, filled)
        if now != [layout, lengths]:  # each piece is one of the value as it is then
            raise DataError(
                f"Rows of the client {client} have changed while they were sent.",
                "Another thread writes to them, or pandas has put columns of a frame together that are used there.",
                "Pass a copy that nothing else uses meanwhile, such as frame.copy().",
            )


def _ask(worker: Worker, client: str, name: str, number: int, start: int) -> Piece:
    own = uuid4().hex
    waiting = _waiting[own] = queue.SimpleQueue()
    question = {"id": own, "name": name, "number": number, "start": start, "worker": worker.address}
    try:
        worker.log_event(_topic(client), question)
        piece = waiting.get(timeout=PATIENCE_S)
    except queue.Empty:
        raise DataError(
            f"The client {client} has not sent the rows that it holds within {PATIENCE_S:g} s.",
            "Its process has ended, hangs or is suspended, or the scheduler is busy.",
            "Keep the program running that passed the rows; or give Dask rows that its workers read themselves.",
        ) from None
    finally:
        del _waiting[own]
    if piece is None:
        raise DataError(
            f"The client {client} holds the rows no more that a partition is computed from.",
            "The call that they were passed to has ended, or nobody has its result any more.",
            "Pass the rows again; or give Dask rows that its workers read themselves, such as files.",
        )
    return piece


def _topic(client: str) -> str:
    return f"dask-train-rows-{client}"
