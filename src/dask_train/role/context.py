"""State that the session of a role process shares with its data sets: the link to the agent, and the progress."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

import numpy as np

from dask_train.checkpoint.manifest import Cover
from dask_train.data.account import Account, BatchRange
from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.frameworks.base import Framework
from dask_train.role.time_spent import TimeSpent
from dask_train.run.messages import Met


class Link(Protocol):
    """The way from a session to its agent; no call of it waits, except for data.

    ``spent`` is the account of the role's time, which is reported with its progress. ``wanted_size`` is how many of
    this role are to train, where the run was asked for another number while it trains; 0 if it was not.
    """

    spent: TimeSpent
    wanted_size: int

    @property
    def stop_reason(self) -> str:
        """Why the role is to stop; empty while it is not."""

    def wait_until_stopped(self) -> None:
        """Sleep until there is a reason."""

    def report(self, scores: dict[str, Any]) -> None:
        """Send scores."""

    def ask_to_stop(self, reason: str) -> None:
        """Ask the run to stop."""

    def send(self, value: bytes) -> None:
        """Send a pickled value to the run's owner."""

    def receive(self, timeout_s: float | None) -> bytes:
        """Return the next pickled value that was sent to this role."""

    def moved(self, doing: str, *, batches: int = 0, rows: int = 0) -> None:
        """Note progress, how much it was, and what the role is doing now."""

    def note(self, doing: str) -> None:
        """Note what the role is doing now, which is no progress."""

    def dataset(self, name: str) -> tuple[int, Table, Rows]:
        """Return a published data set, and its number in this run, from 1."""

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Return rows of a data set that are not mapped here: ``(k, *row_shape)`` of each column."""

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Rows:
        """Map one group of partitions of an epoch; groups before ``needed_from`` are needed no more."""

    def leave(self, stream: Stream) -> None:
        """Say that no more groups of this epoch are needed."""

    def meet(self, address: str, size: int = 0, or_size: int = 0, *, joins: bool = False) -> Met:
        """Wait until all training roles, or ``size``, or ``or_size``, wait for each other; return where.

        With ``joins`` it waits long.
        """

    def lost_attempt(self, peer: int) -> int:
        """Return the last start of a training role whose process is gone, by its number among them; -1 for none."""

    def start_all_again(self, why: str) -> NoReturn:
        """Let the run start all roles again, as this one can't continue, and wait for the end of this process."""

    def shared_among(self, size: int) -> None:
        """Report that the batches that are left are shared by as many of this role as were asked for."""

    def notice(self, text: str) -> None:
        """Report to the run's owner what is out of the ordinary."""

    def went_on(self, covers: Sequence[Cover]) -> None:
        """Report that the role resumes from a checkpoint, and which batches are in it."""


@dataclass(kw_only=True)
class Context:
    """State of a role that its data sets read and change.

    Attributes
    ----------
    link, framework, account
        Link to the agent, framework adapter of the run, and record of the batches that the role takes.
    rank, size
        Rank of this process in its role, and number of ranks.
    num_threads
        Number of threads, the process's share of the host's cores.
    num_shares
        Number of shares that each global batch is cut into, several per rank. Default: 0, one per rank.
    has_own_data
        Whether the run gave this role data of its own. Then batches of other data sets, such as validation data, do
        not count as training steps.
    num_batches
        Number of steps so far.
    global_rows, position
        As in :class:`~dask_train.role.session.Session`.
    behind
        Passes over whole partitions that are in the checkpoint with which this process has begun, of the same run.
    open_passes
        Generators over data that have not ended, as weak references.
    """

    link: Link
    framework: Framework
    account: Account
    rank: int
    size: int
    num_threads: int = 1
    num_shares: int = 0
    has_own_data: bool = False
    num_batches: int = 0
    global_rows: int = 0
    position: tuple[int, int] = (0, 0)
    behind: Sequence[BatchRange] = ()
    open_passes: WeakSet[Generator[Any, None, None]] = field(default_factory=WeakSet, repr=False)
