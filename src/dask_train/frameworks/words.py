"""What ranks tell each other before their framework's own network is up: one word each, given to all."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from dask_train.errors import LaunchError

# How often a rank tries whether rank 0 listens yet.
RETRY_S = 0.05
# No word is longer, so that a stranger that connects can't fill the memory.
MAX_LINE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """One rank's place among all.

    Attributes
    ----------
    rank, num_ranks
        Its number, and of how many.
    meeting
        ``host:port`` at which rank 0 awaits the others.
    port_holder
        In rank 0 the socket that is bound to this port, and does not listen yet.
    """

    rank: int
    num_ranks: int
    meeting: str
    port_holder: socket.socket | None


def words_of_all(place: RankPlace, word: str, timeout_s: float) -> Sequence[str]:
    """Give each rank the words of all, in the order of ranks, when all are there.

    Networks of native libraries wait without a deadline for ranks that never come, or end the process then; here a
    missing one is an error in time.

    Parameters
    ----------
    place
        Which rank this is; its socket is closed.
    word
        What it tells.
    timeout_s
        How long the others may take, in seconds.

    Raises
    ------
    LaunchError
        A rank did not come within ``timeout_s``, or can't be reached.
    """
    deadline = time.monotonic() + timeout_s
    try:
        return _collected(place, word, deadline) if place.port_holder is not None else _sent(place, word, deadline)
    except OSError as error:
        raise LaunchError(
            f"Rank {place.rank} of {place.num_ranks} could not meet the others at {place.meeting} within "
            f"{timeout_s:g} s: {error}.",
            "A rank did not start or was lost, or a firewall lies between the hosts of the Dask workers.",
            "Look at the other roles' logs, open the ports between the hosts, or allow a longer launch.",
        ) from error


def _collected(place: RankPlace, word: str, deadline: float) -> list[str]:
    """In rank 0: collect the words of those who come; a silent connection does not block the others."""
    assert place.port_holder is not None
    words = {place.rank: word}
    came: dict[int, socket.socket] = {}
    with place.port_holder as listener, ExitStack() as others, selectors.DefaultSelector() as ready:
        listener.listen(place.num_ranks)
        ready.register(listener, selectors.EVENT_READ)
        while len(words) < place.num_ranks:
            for key, _ in ready.select(_left(deadline)):
                if key.fileobj is listener:
                    listener.settimeout(_left(deadline))
                    other = others.enter_context(listener.accept()[0])
                    other.setblocking(False)
                    ready.register(other, selectors.EVENT_READ, (other, bytearray()))
                    continue
                other, received = key.data
                if _says_more(other, received):
                    continue
                ready.unregister(other)
                with suppress(ValueError, TypeError, KeyError, RecursionError):  # a stranger's
                    line = json.loads(received)
                    rank, sent_word = int(line["rank"]), str(line["word"])
                    if 0 < rank < place.num_ranks:
                        came[rank], words[rank] = other, sent_word
        every = [words[rank] for rank in range(place.num_ranks)]
        for other in came.values():
            other.settimeout(_left(deadline))
            other.sendall(json.dumps({"words": every}).encode() + b"\n")
    return every


def _says_more(other: socket.socket, received: bytearray) -> bool:
    """Take what has come; whether the line is not yet at its end."""
    try:
        some = other.recv(4096)
    except BlockingIOError:
        return True
    except OSError:  # it is gone
        return False
    received += some
    return bool(some) and not received.endswith(b"\n") and len(received) < MAX_LINE


def _sent(place: RankPlace, word: str, deadline: float) -> list[str]:
    host, _, port = place.meeting.rpartition(":")
    while True:
        with (
            suppress(ConnectionError, ValueError, KeyError),  # it does not listen yet
            socket.create_connection((host.strip("[]"), int(port)), timeout=_left(deadline)) as first,
        ):
            first.sendall(json.dumps({"rank": place.rank, "word": word}).encode() + b"\n")
            return [str(each) for each in _line(first, deadline)["words"]]
        time.sleep(min(RETRY_S, _left(deadline)))


def _line(end: socket.socket, deadline: float) -> Any:
    received = b""
    while not received.endswith(b"\n") and len(received) < MAX_LINE:
        end.settimeout(_left(deadline))
        some = end.recv(4096)
        if not some:
            raise ConnectionError("the connection was closed")
        received += some
    return json.loads(received)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("not all came in time")
    return left
