"""Collectives by which the ranks of a training loop agree between steps, over the model's process group or session."""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from dask_train.collectives import ProcessGroup, SumBuffer
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.role.session import Session


class Agreement(ABC):
    """Collectives of a training loop; all ranks call them in the same order.

    Attributes
    ----------
    rank, size
        This rank, and the number of ranks.
    replaceable
        The process group, if a lost rank is replaced in place; else None.
    resizes
        Whether the number of ranks changes here. The first rank sets it before :meth:`flags`, after which all know it,
        if ranks are replaced in place.
    keeps
        Whether all keep their state in memory here; set and known as ``resizes``, over a session.
    """

    rank: int
    size: int
    replaceable: ReplaceableGroup | None = None
    resizes: bool = False
    keeps: bool = False

    @abstractmethod
    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the first rank's flags on all ranks; the arguments of others are ignored."""

    @abstractmethod
    def _gathered(self, what: str, rows: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks, concatenated."""

    def state(self) -> Any:
        """Return state for a rank that replaces a lost one. Default: None."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027 - not all have something to take over
        """Restore a value of :meth:`state` of another rank."""

    @property
    def all_reduce_s(self) -> float:
        """Seconds that this rank has spent in all-reduces; NaN if not measured."""
        return math.nan

    @property
    def waiting_s(self) -> float:
        """Seconds of these that it waited for other ranks; NaN if not measured."""
        return math.nan

    def of_first(self, value: Any) -> Any:
        """Return the first rank's value on all ranks, sent as a pickle; the arguments of others are ignored."""
        return self.of_rank(0, value)

    def of_rank(self, rank: int, value: Any) -> Any:
        """Return one rank's value on all ranks, as :meth:`of_first`."""
        if self.size == 1:
            return value
        data = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == rank else np.empty(0, np.uint8)
        return pickle.loads(self._gathered(f"of worker {rank}", data).tobytes())  # noqa: S301 - of a worker of this run

    def of_all(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, sent as pickles."""
        if self.size == 1:
            return [value]
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        ends = np.cumsum(self._gathered("of each worker: length", np.array([len(data)]))).tolist()
        everyones = self._gathered("of each worker", data)
        parts = [everyones[start:end].tobytes() for start, end in zip([0, *ends], ends, strict=False)]
        return [pickle.loads(part) for part in parts]  # noqa: S301 - of workers of this run


class GroupAgreement(Agreement):
    """Agreement over a process group, which other ranks may join.

    Parameters
    ----------
    group
        Process group of the ranks.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group, self.rank = group, group.rank
        self.replaceable = group if isinstance(group, ReplaceableGroup) else None

    @property
    def size(self) -> int:  # type: ignore[override]
        """Return the current number of ranks."""
        return self._group.size

    @cached_property
    def _flags(self) -> SumBuffer:
        return self._group.channel([(2 if self.replaceable is None else 3,)], np.float64)

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags of the first rank."""
        if self.size == 1:
            return save, stop
        own_flags = [save, stop] if self.replaceable is None else [save, stop, self.resizes]
        (flags,) = self._group.broadcast(self._flags, [np.array(own_flags, np.float64)])
        self.resizes = len(flags) > 2 and bool(flags[2])
        return bool(flags[0]), bool(flags[1])

    @property
    def all_reduce_s(self) -> float:
        """Seconds that this rank has spent in all-reduces."""
        return self._group.all_reduce_s

    @property
    def waiting_s(self) -> float:
        """Seconds of these that it waited for other ranks."""
        return self._group.waiting_s

    def _gathered(self, what: str, rows: np.ndarray) -> np.ndarray:
        (gathered,) = self._group.gather(what, [rows])
        return np.asarray(gathered)


class SessionAgreement(Agreement):
    """Agreement over the collective calls of a session, which the user's loop makes as well.

    Parameters
    ----------
    session
        Session of a role that trains.
    """

    def __init__(self, session: Session) -> None:
        assert session.world_rank is not None
        self._session, self.rank, self.size = session, session.world_rank, session.world_size

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags of the first rank, by one sum: others add nothing."""
        if self.size == 1:
            return save, stop
        flags = self._session.all_reduce(np.array([save, stop, self.keeps], np.int64) * (self.rank == 0))
        self.keeps = bool(flags[2])
        return bool(flags[0]), bool(flags[1])

    def _gathered(self, what: str, rows: np.ndarray) -> np.ndarray:  # noqa: ARG002 - each call is named by its arrays
        return np.asarray(self._session.all_gather(rows))
