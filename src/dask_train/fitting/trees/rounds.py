"""What happens between two rounds: scores are told, checkpoints kept, and all ranks stop after the same one."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.fitting.trees.task import EvalSet, TreesTask
from dask_train.role.session import Session

# The file of a checkpoint.
FILE = "rounds.pickle"

# What a library keeps of scores: a list by data set and metric, of one value a round.
Scores = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What training goes on with.

    Attributes
    ----------
    num_rounds
        How many have been trained.
    state
        What the library's loop needs besides: its booster, callbacks, scores.
    ended
        Whether the loop had come to its end before its last round.
    fits
        What has to be the same to go on.
    """

    num_rounds: int
    state: Any
    ended: bool = False
    fits: Mapping[str, Any] = field(default_factory=dict)


class Rounds:
    """The rounds of one rank.

    Parameters
    ----------
    session, task
        Of the role.
    fits
        What a checkpoint has to have been made with, by name.
    """

    def __init__(self, session: Session, task: TreesTask, fits: Mapping[str, Any]) -> None:
        self._session, self._evals, self._keeps, self._fits = session, task.evals, task.keeps, fits
        self._kept = 0
        self.history: dict[str, list[float]] = {}
        self.num_rounds = 0

    def load(self) -> Kept | None:
        """The last checkpoint, the same on all ranks; None where there is none.

        Raises
        ------
        ValueError
            It is of another fit.
        """
        folder = self._session.load_checkpoint() if self._keeps else None
        kept: Kept | None = None if folder is None else pickle.loads((folder / FILE).read_bytes())  # noqa: S301
        if kept is not None:
            _check_fits(kept.fits, self._fits)
            self.num_rounds = self._kept = kept.num_rounds
        low, high = (self._session.all_reduce(np.array(self.num_rounds), op) for op in ("min", "max"))
        assert low == high, "all ranks begin with the same checkpoint"
        return kept

    def past(self, scores: Scores, state: Callable[[], Any]) -> bool:
        """Note that a round has been trained; whether to stop, which is the same on all ranks.

        Parameters
        ----------
        scores
            Of all rounds.
        state
            What to keep, when it is time.
        """
        session = self._session
        self.num_rounds += 1
        self.history = named(scores, self._evals)
        if session.world_rank == 0:
            session.report(round=self.num_rounds, **{name: values[-1] for name, values in self.history.items()})
            if self._keeps and session.checkpoints().due(self.num_rounds):
                self._keep(state(), ended=False)
        return bool(session.all_reduce(np.array(int(session.should_stop())), "max"))

    def end(self, state: Callable[[], Any], *, ended: bool) -> None:
        """Keep what there is in the end; whether the loop has found an end by itself."""
        if self._keeps and self._session.world_rank == 0 and (ended or self.num_rounds > self._kept):
            self._keep(state(), ended=ended)

    def _keep(self, state: Any, *, ended: bool) -> None:
        kept = Kept(num_rounds=self.num_rounds, state=state, ended=ended, fits=self._fits)
        content = cloudpickle.dumps(kept)

        def write(folder: Path) -> None:
            (folder / FILE).write_bytes(content)

        self._session.save_checkpoint(write)
        self._session.checkpoints().was_kept(self.num_rounds)
        self._kept = self.num_rounds


def fits_of(task: TreesTask, session: Session, *, free: Set[str]) -> dict[str, str]:
    """What a checkpoint has to have been made with, by name: parameters that are not free, and the data.

    Functions have no text by which they are known again, and are left out.
    """
    matrix = task.columns.matrix
    params = {name: repr(value) for name, value in task.estimator.get_params().items() if name not in free}
    found = {name: value for name, value in params.items() if " at 0x" not in value}
    found |= {"rows": f"{session.num_rows:,}", "features": repr(matrix.names or matrix.row_shape[0])}
    if matrix.categories is not None:  # trees know them by their codes
        text = repr([known if known is None else list(known) for known in matrix.categories])
        long = f"{text[:100]}... {hashlib.sha256(text.encode()).hexdigest()[:8]}"
        found["categories"] = text if len(text) <= len(long) else long
    return found


def named(scores: Scores, evals: Sequence[EvalSet]) -> dict[str, list[float]]:
    """The scores of all rounds by their names in the run."""
    prefixes = {each.name: each.prefix for each in evals}
    return {
        prefixes[name] + re.sub(r"\W", "_", metric): list(map(float, values))
        for name, by_metric in scores.items()
        for metric, values in by_metric.items()
    }


def _check_fits(kept: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    if differing:
        told = ", ".join(f"{name}={kept.get(name)!r} there and {now.get(name)!r} here" for name in sorted(differing))
        raise ValueError(
            f"The checkpoint is of another fit: {told}. Go on with the same estimator and data; only n_estimators and "
            "the number of workers may differ. Or begin anew, in another folder or without resume=True."
        )
