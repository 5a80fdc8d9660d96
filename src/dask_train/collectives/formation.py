"""The ranks as they meet, at first and after a loss: where all are, and how they reach each other."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.ring import Ring
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.transport.connections import Credentials


@dataclass(frozen=True, kw_only=True)
class Formation:
    """The ranks as they have met.

    Attributes
    ----------
    hosts, rank
        Where all are, and which this is.
    memory
        What the ranks of this host share.
    across
        The way to other hosts, of the first rank of each alone; None if there is one host. Default: None.
    attempts
        By rank, which start of it has come.
    """

    hosts: Hosts
    rank: int
    memory: SharedMemory
    attempts: Sequence[int]
    across: Ring | None = None


class ReplacingRun(Protocol):
    """The run, as a group sees it whose ranks are replaced."""

    def form(self, size: int = 0, or_size: int = 0) -> Formation:
        """Meet all ranks, those that were replaced among them.

        Parameters
        ----------
        size
            How many they are to be; 0 for one that comes new, which meets the others.
        or_size
            How many they may be as well, if others know that they are; 0 for no other number.

        Raises
        ------
        DaskTrainError, ValueError
            They can't be met.
        """

    def lost_attempt(self, rank: int) -> int:
        """Return the last start of a rank whose process is gone; -1 where none is."""

    def start_all_again(self, why: str) -> NoReturn:
        """Let the run start all ranks again, and wait for the end of this process."""


@dataclass(frozen=True)
class State:
    """The state from which a newcomer continues.

    Attributes
    ----------
    border
        The number of the border.
    shared
        What all ranks have, from the function that :meth:`ReplaceableGroup.border` was given.
    own
        What was the lost rank's own there, as it was mirrored; None for one that comes in no one's place.
    """

    border: int
    shared: Any
    own: bytes | None


def formed(
    hosts: Hosts,
    rank: int,
    credentials: Credentials,
    attempts: Sequence[int],
    timeouts_s: tuple[float, float],
    look: Callable[[], object],
) -> Formation:
    """Meet the ranks of this host, and as their first one those of other hosts.

    Parameters
    ----------
    hosts, rank
        Of all ranks; and this one.
    credentials
        What they know each other by.
    attempts
        By rank, which start of it comes.
    timeouts_s
        How long the others may take to come, and then to any call, in seconds.
    look
        Called again and again while this waits, also later in calls over hosts; what it raises ends the wait.

    Raises
    ------
    LaunchError
        They did not come in time, or one of them is of another user.
    """
    meeting_s, patience_s = timeouts_s
    memory = meet(hosts, rank, credentials.key, meeting_s, look)
    if len(hosts.groups) == 1 or rank not in hosts.leaders:
        return Formation(hosts=hosts, rank=rank, memory=memory, attempts=attempts)
    try:
        # Whoever still dials for an earlier meeting, at a port that is another's by now, has another key.
        name = repr((hosts.addresses, tuple(attempts))).encode()
        own = Credentials(key=hmac.digest(credentials.key, name, "sha256"), tls=credentials.tls)
        addresses = [hosts.addresses[leader] for leader in hosts.leaders]
        across = Ring(addresses, hosts.leaders.index(rank), own, patience_s, look=look)
    except BaseException:
        memory.leave()  # some may have it, and wait there
        memory.close()
        raise
    return Formation(hosts=hosts, rank=rank, memory=memory, attempts=attempts, across=across)
