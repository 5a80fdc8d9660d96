"""A grid as it is kept: the scores so far, and the estimator that was fitted on all rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dask_train.checkpoint.policy import Checkpoint
from dask_train.searching import best_model
from dask_train.searching.estimators.prefixes import FoldScore
from dask_train.searching.kept_place import KeptPlace
from dask_train.training.launch import place_of

_STATE, _MODEL = "grid.pickle", "model"


@dataclass(kw_only=True)
class GridState:
    """What a checkpoint of a grid holds.

    Attributes
    ----------
    scores
        Of candidates on folds, by their numbers.
    warnings
        What estimators have warned of.
    num_fits, refit_s
        As in :class:`~dask_train.searching.estimators.grid.GridWork`.
    best
        The best candidate, fitted on all rows; None before.
    """

    scores: dict[tuple[int, int], FoldScore]
    warnings: list[str]
    num_fits: int
    refit_s: float
    best: Any = field(default=None, repr=False)


@contextmanager
def kept_grid(policy: Checkpoint, arguments: Mapping[str, Any], *, resume: bool) -> Iterator[KeptGrid]:
    """Claim the place where a grid with these arguments is kept, while this lasts; see :meth:`KeptPlace.load`.

    Raises
    ------
    ValueError
        The policy names what is best.
    """
    if policy.best is not None:
        raise ValueError(
            f"The best checkpoint is to be known by {policy.best!r}, and each one of a grid has all scores so far. "
            "Leave best= and mode= out."
        )
    place = place_of(policy, f"grid-{uuid.uuid4().hex[:6]}", resume)
    kept = KeptGrid(place, arguments, _STATE)
    try:
        kept.open()
        yield kept
    finally:
        kept.close()


class KeptGrid(KeptPlace):
    """Where a grid is kept; for one client.

    Attributes
    ----------
    state
        What an earlier call has left there, where this one goes on; else None.
    """

    state: GridState | None = None

    def open(self) -> None:
        """Claim the place, and see what there is to go on with; see :meth:`KeptPlace.load` for errors."""
        if (loaded := self.load()) is None:
            return
        told, folder = loaded
        has_best = told.pop("has_best")
        told.pop("arguments")
        self.state = GridState(**told, best=best_model.kept(folder / _MODEL) if has_best else None)

    def save(self, state: GridState, *, now: bool = False) -> None:
        """Keep the state if it is time to, by the number of scores and the seconds since the last one.

        Raises
        ------
        CheckpointError
            It can't be written.
        """
        if not now and not self._folder.due(len(state.scores)):
            return
        told = {name: value for name, value in vars(state).items() if name != "best"}
        has_best = state.best is not None
        self.store(
            {**told, "has_best": has_best},
            lambda folder: best_model.keep(folder / _MODEL, state.best) if has_best else None,
        )
        self._folder.was_kept(len(state.scores))
