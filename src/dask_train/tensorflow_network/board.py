"""The board: an ordered stream of small values that every role may append to and anyone may follow."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, overload

from distributed import Client
from distributed.protocol.pickle import dumps

from dask_train.cluster.peer import Peer
from dask_train.config import Deadlines, seconds_or
from dask_train.errors import ClosedError, DataError, RoleLostError
from dask_train.input_errors import raises_at_the_call
from dask_train.tensorflow_network.mirror import Mirror
from dask_train.tensorflow_network.plugin import ensure_networks_plugin

# A board is for scores and progress; what is larger belongs into Dask's own memory, not through the scheduler.
MAX_VALUE_BYTES = 100_000


class Board(Mirror):
    """The last ``maxlen`` values that were appended under one name, by anyone on the cluster.

    Reading (``scores[-1]``, ``len(scores)``, iterating, ``bool``) looks at a local copy that follows the scheduler,
    and costs no message: what others append is seen about a millisecond later, what you append at once. Made by
    :func:`board`.

    Notes
    -----
    A board belongs to the networks whose Dask workers opened it; before any has, to those that its client started.
    When one of those loses a Dask worker, :meth:`wait_until` raises instead of waiting for ever.
    """

    def __init__(self, peer: Peer, name: str, maxlen: int) -> None:
        super().__init__(peer)
        self.name = name
        self._maxlen = maxlen
        self._values: deque[Any] = deque(maxlen=maxlen)
        self._ring = ""
        self._count = 0
        self._networks: dict[str, str] = {}  # behind this board, each with its loss or ""

    @property
    def count(self) -> int:
        """Return how many values were ever appended, also those that are no longer kept."""
        return self._count

    @raises_at_the_call
    def append(self, value: Any) -> Any:
        """Put a value at the end; seen by everyone, in one order.

        Parameters
        ----------
        value
            Anything that pickles to at most 100 kB: a number, a dict of scores.

        Returns
        -------
        None, or an awaitable of None with an asynchronous client.

        Raises
        ------
        ValueError
            The value is larger than that.
        """
        data = dumps(value)
        if len(data) > MAX_VALUE_BYTES:
            raise ValueError(
                f"A value of {len(data)} bytes was appended to board {self.name!r}, which takes {MAX_VALUE_BYTES}. "
                "A board carries scores and progress through the scheduler; keep data in Dask futures."
            )
        return self._peer.run(self._append, data)

    async def _append(self, data: bytes) -> None:
        if self._ended:
            self._check()
        answer = await self._peer.ask("train_board_append", values=[data], **self._cursor())
        try:
            self._keep(answer)
        except DataError as failure:  # what others appended; this value has arrived
            self._fail(failure)
        self._tell()

    def wait_until(self, predicate: Callable[[Board], Any], timeout_s: float | None = None) -> Any:
        """Wait until ``predicate(board)`` is true.

        Parameters
        ----------
        predicate
            Called on the event loop whenever something was appended, so it must be quick. While the board is empty,
            an ``IndexError`` means "not yet", so that ``scores[-1] < 0.1`` needs no test for an empty board.
        timeout_s
            Seconds; default: ``train.progress.timeout``.

        Returns
        -------
        This board, or an awaitable of it with an asynchronous client.

        Raises
        ------
        StalledError
            It did not become true in time.
        RoleLostError
            A Dask worker of a network behind this board died.
        ClosedError
            The networks behind this board were closed while it was awaited, or the board was deleted.
        DataError
            A value can't be unpickled here.
        """
        seconds = seconds_or(Deadlines.from_dask_config().progress_s, timeout_s)
        return self._peer.run(self._wait_until, predicate, seconds)

    async def _wait_until(self, predicate: Callable[[Board], Any], timeout_s: float) -> Board:
        at_first = set(self._networks)

        def met() -> bool:
            if self._holds(predicate):
                return True
            if loss := next(filter(None, self._networks.values()), ""):
                raise RoleLostError(loss, change="Close the network, look at that Dask worker's log, start again.")
            if at_first and not self._networks:
                raise ClosedError(f"Network {', '.join(at_first)} was closed while board {self.name!r} was awaited.")
            return False

        await self._until(met, timeout_s, f"What was awaited of board {self.name!r} ({self._count} values so far)")
        return self

    def _holds(self, predicate: Callable[[Board], Any]) -> bool:
        try:
            return bool(predicate(self))
        except IndexError:
            if self._values:
                raise
            return False

    def delete(self) -> Any:
        """Remove the board from the scheduler; the next one of this name starts empty. This one is over.

        Returns
        -------
        None
            Or an awaitable of None with an asynchronous client.
        """
        return self._peer.run(self._delete)

    async def _delete(self) -> None:
        self._end()
        self._fail(ClosedError(f"Board {self.name!r} was deleted.", change="Open it again with dask_train.board."))
        await self._peer.ask("train_board_delete", board=self.name)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._values))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return list(self._values)[index] if isinstance(index, slice) else self._values[index]

    def __repr__(self) -> str:
        return f"<Board {self.name!r}: {len(self)} values, the last {self._values[-1] if self._values else None!r}>"

    def __await__(self) -> Any:
        """Read once: with an asynchronous client, ``await board(...)`` gives a board that has been."""
        return self._open().__await__()

    async def _open(self) -> Board:
        await ensure_networks_plugin(self._peer)
        await self._poll(0)
        self._follow()
        return self

    async def _poll(self, timeout_s: float) -> None:
        known = {"networks": self._networks, **self._cursor()}
        self._keep(await self._peer.ask("train_board_read", timeout_s=timeout_s, **known))

    def _cursor(self) -> dict[str, Any]:
        return {
            "board": self.name,
            "maxlen": self._maxlen,
            "who": self._peer.id,
            "ring": self._ring,
            "since": self._count,
        }

    def _keep(self, answer: dict[str, Any]) -> None:
        """Take what is new; two answers may overlap, or come in another order than they were asked for."""
        if answer["ring"] != self._ring:
            self._ring, self._count = answer["ring"], 0
            self._values.clear()
        fresh = answer["values"][max(0, self._count - answer["first"]) :]
        try:
            self._values.extend([pickle.loads(value) for value in fresh])  # noqa: S301 - trusted as Dask's messages are
        except Exception as error:
            raise DataError(
                f"A value on board {self.name!r} can't be unpickled here: {type(error).__name__}: {error}.",
                "What defines its class is missing here, or is another version.",
                "Append numbers, strings, lists and dicts of them.",
            ) from error
        self._count = max(self._count, answer["first"] + len(answer["values"]))
        self._networks = answer["networks"]


@raises_at_the_call
def board(name: str, *, maxlen: int = 1000, client: Client | None = None) -> Board:
    """Open the board of that name, in a client or in a task on a Dask worker.

    Parameters
    ----------
    name
        Shared by all who want to see the same values.
    maxlen
        Number of values that this reader sees; the scheduler keeps the most that anyone asked for. Default: 1000.
    client
        Client to ask through. Default: in a task the Dask worker's own connection, else the process's client.

    Returns
    -------
    Board
        It has been read once; with an asynchronous client, ``await`` it first.

    Raises
    ------
    TypeError, ValueError
        The name is no string or empty, or ``maxlen`` is below 1.

    Examples
    --------
    >>> scores = dt.board("scores", maxlen=10)
    >>> scores.append(0.31)
    >>> scores.wait_until(lambda s: s[-1] < 0.1, timeout_s=60)
    """
    if not isinstance(name, str):
        raise TypeError(f"A board's name is a string, not {name!r}.")
    if not name:
        raise ValueError("A board's name is empty. Name it after what it carries, such as 'scores'.")
    size: Any = maxlen
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"maxlen is {maxlen!r}; a board keeps at least 1 value.")
    opened = Board(Peer.here(client), name, maxlen)
    if not opened._peer.asynchronous:
        opened._peer.run(opened._open)
    return opened
