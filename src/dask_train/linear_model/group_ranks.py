"""The ranks of a fit in which a lost one is replaced in place, which sum in a group that can do so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_train.collectives import ProcessGroup, SumBuffer
from dask_train.collectives.kinds import taken
from dask_train.collectives.reductions import Reduction
from dask_train.linear_model.ranks import SessionRanks


class GroupRanks(SessionRanks):
    """The ranks of a run; see :class:`~dask_train.linear_model.ranks.Ranks`. On one host sums have a session's bits.

    Parameters
    ----------
    session : Session
        This rank's own.
    parts : list
        Its partitions, as of :class:`~dask_train.linear_model.ranks.SessionRanks`.
    group
        In which they sum.
    """

    def __init__(self, session: Any, parts: list[Any], group: ProcessGroup) -> None:
        super().__init__(session, parts)
        self._group = group
        self._channels: dict[tuple[tuple[tuple[int, ...], ...], str], SumBuffer] = {}

    def all_reduce(self, arrays: Any, op: str = "sum") -> Any:
        """Return arrays that are combined over all ranks."""
        reduction = Reduction(op)
        return self._together(f"all_reduce(op={op!r})", arrays, lambda inputs: self._reduced(inputs, reduction))

    def broadcast(self, arrays: Any, root: int = 0) -> Any:
        """Return the arrays of one rank."""
        return self._together(f"broadcast(root={root})", arrays, lambda inputs: self._of_root(inputs, root))

    def all_gather(self, rows: Any) -> Any:
        """Return the rows of all ranks."""
        group = self._group
        return self._together(
            "all_gather()",
            rows,
            lambda inputs: [group.gather((each.dtype.str, each.shape[1:]), [each])[0] for each in inputs],
        )

    def _together(self, name: str, arrays: Any, make: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Any:
        inputs, link = taken(name, arrays), self._session._link
        call = f"{name} of {[(each.dtype.str, each.ndim) for each in inputs.arrays]}"
        link.note(f"in {name}, waiting for the other ranks")  # which does not count as progress
        results = self.steps.remembered(call, lambda: make(inputs.arrays))
        link.moved(f"past {name}")
        return inputs.given_back(results)

    def _reduced(self, inputs: list[np.ndarray], reduction: Reduction) -> list[np.ndarray]:
        arrays, reduced = [reduction.before(each) for each in inputs], [np.empty(0)] * len(inputs)
        for dtype in sorted({each.dtype.str for each in arrays}):
            places = [place for place, each in enumerate(arrays) if each.dtype.str == dtype]
            its = [arrays[place] for place in places]
            totals = self._group.combine(self._channel(its), its, reduction.combine)
            for place, total in zip(places, totals, strict=True):
                reduced[place] = reduction.after(total.copy(), inputs[place].dtype, self._group.size)
        return reduced

    def _of_root(self, inputs: list[np.ndarray], root: int) -> list[np.ndarray]:
        received = []
        for each in inputs:
            (total,) = self._group.broadcast(self._channel([each]), [each], root)
            # If this rank replaces the root, `total` is what the lost one has sent: the others have continued with it.
            if self._group.rank == root and total.tobytes() != each.tobytes():
                self._session._link.start_all_again("what the first worker decided came out otherwise in its successor")
            received.append(total.copy())
        return received

    def _channel(self, arrays: list[np.ndarray]) -> SumBuffer:
        """Return the same channel for all calls with such arrays."""
        shapes, dtype = tuple(each.shape for each in arrays), arrays[0].dtype.str
        if (shapes, dtype) not in self._channels:
            self._channels[shapes, dtype] = self._group.channel(shapes, dtype)
        return self._channels[shapes, dtype]
