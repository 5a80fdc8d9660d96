"""The state of all ranks after one of the last rounds, in memory of their Dask workers, where it outlives the ranks."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

from dask_train.data.state_memory import StateMemory
from dask_train.trainers.common.agreement import Agreement

# Of the time of a training, at most about this part goes into its kept states: one is due when so much time has
# passed since the last one that what that one took is no more than this part of it.
SHARE = 0.02


class KeptRounds:
    """Keeps a state in memory of each Dask worker of the ranks, and finds the last one there.

    One rank writes for all of its Dask worker: the lowest. So a state survives as long as one of the Dask workers.

    Parameters
    ----------
    memory
        Of this rank's Dask worker.
    agreement
        Collectives with the other ranks.
    notice
        Called with what is out of the ordinary.
    clock
        Monotonic clock, in seconds.
    """

    def __init__(
        self,
        memory: StateMemory,
        agreement: Agreement,
        notice: Callable[[str], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory, self._agreement, self._notice, self._clock = memory, agreement, notice, clock
        self._last_s, self._took_s = clock(), 0.0
        self._is_shared = self._writes = self._is_refused = False

    def last(self) -> Any:
        """Return the last state that is whole on one of the Dask workers, the same on all ranks; None if none is.

        All ranks call it, before the first :meth:`write`.
        """
        steps, content = self._memory.read()
        known = self._agreement.of_all((self._memory.holder, steps))
        holders = [holder for holder, _ in known]
        self._is_shared = len(set(holders)) > 1
        self._writes = holders.index(self._memory.holder) == self._agreement.rank
        steps_by_rank = [each for _, each in known]
        giver = steps_by_rank.index(max(steps_by_rank))
        if not steps_by_rank[giver]:
            return None
        return pickle.loads(self._agreement.of_rank(giver, content))  # noqa: S301 - of a worker of this run

    def due(self) -> bool:
        """Return whether to keep the state now; in the first rank."""
        return not self._is_refused and self._clock() - self._last_s >= self._took_s / SHARE

    def write(self, steps: int, take: Callable[[], Any]) -> None:
        """Keep the state of the first rank after that many steps; all ranks call it at once.

        Parameters
        ----------
        steps
            Above 0.
        take
            Called in all ranks; returns the state in the first one.
        """
        began = self._clock()
        content = self._taken(take)
        if self._is_shared:
            content = self._agreement.of_first(content)
        if self._writes and content:
            try:
                self._memory.write(steps, content)
            except OSError as error:
                self._writes = False
                self._notice(
                    f"The state after step {steps} could not be kept in memory: {error}. If a worker is lost, all "
                    "continue from what is kept elsewhere, or from the last checkpoint."
                )
        self._last_s = self._clock()
        self._took_s = self._last_s - began

    def _taken(self, take: Callable[[], Any]) -> bytes:
        """Return the state of the first rank, pickled; empty in others, and where it can't be."""
        if self._agreement.rank:
            take()
            return b""
        try:
            return pickle.dumps(take(), protocol=5)
        except Exception as error:  # of code of the user's, which callbacks may bring along
            self._is_refused = True
            self._notice(
                f"The state of a round can't be kept in memory ({type(error).__name__}: {error}), so if a worker is "
                "lost, all begin with the last checkpoint, or anew. Let callbacks hold only what can be pickled."
            )
            return b""
