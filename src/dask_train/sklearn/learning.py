"""What the role process of an incremental estimator does: each batch is learnt once. Knows nothing of Dask."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.data.plan import Shuffle
from dask_train.frameworks.base import Framework
from dask_train.role.refusals import Refusing
from dask_train.trainers.common.entry import SpecRole
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.task import LoopTask

if TYPE_CHECKING:
    from dask_train.role.session import Session
    from dask_train.trainers.common.loop import TrainingLoop
    from dask_train.trainers.common.outcome import Outcome

# The part of the state that is trained.
_ESTIMATOR = "estimator"


class Learners(Framework):
    """The adapter for none, whose processes have also imported linear models, most of what learns batch by batch."""

    imports = ("numpy", "dask_train.role.main", "sklearn.linear_model", "dask_train.sklearn.learning")


@dataclass(frozen=True, kw_only=True)
class Learning(Refusing):
    """Called with a session, it learns all batches, and returns what training leaves.

    Attributes
    ----------
    estimator
        As it is before the first batch.
    epochs, batch_size, shuffle, seed
        Of the batches.
    more
        Keywords of each ``partial_fit``: the classes.
    has_weights
        Whether the last column is of weights.
    keeps
        Whether the run has a place for checkpoints.
    """

    estimator: Any = field(repr=False)
    epochs: int
    batch_size: int
    shuffle: Shuffle
    seed: int
    more: Mapping[str, Any]
    has_weights: bool
    keeps: bool

    __name__ = "incremental"

    def __call__(self, session: Session) -> Outcome | None:
        """Learn all batches.

        Raises
        ------
        CheckpointError
            The last checkpoint was begun with something else, or by an earlier version.
        ValueError
            A label is not one of the classes, which few estimators check.
        """
        return SpecRole(self, self._task(session))(session)

    def worker(self, session: Session, loop: TrainingLoop) -> None:  # noqa: ARG002 - as of every kind
        """Learn the batches that are left."""
        estimator = self.estimator

        def restore(content: bytes) -> None:
            nonlocal estimator
            estimator = _unpickled(content)

        loop.keep(RankState().shared(_ESTIMATOR, lambda: cloudpickle.dumps(estimator), restore))
        for _ in loop.epochs():
            for batch in loop.batches():
                self._learn(estimator, *batch)
                loop.step_done()
            loop.epoch_done()

    def _learn(self, estimator: Any, rows: np.ndarray, *others: np.ndarray) -> None:
        more = dict(self.more)
        if self.has_weights:
            *others, more["sample_weight"] = others  # type: ignore[assignment]
        if "classes" in more:
            _check_labels(others[0], more["classes"])
        estimator.partial_fit(rows, *others, **more)

    def _task(self, session: Session) -> LoopTask:
        """Return how long to train; what was passed about checkpoints is known here only."""
        of_batches = {name: getattr(self, name) for name in ("batch_size", "shuffle", "seed")}
        if not self.keeps:
            return LoopTask(epochs=self.epochs, **of_batches)
        checkpoints = session.checkpoints()
        begun_with = {**_configuration(self.estimator), **of_batches, "rows": session.num_rows}
        if "classes" in self.more:
            begun_with["classes"] = [repr(each) for each in np.asarray(self.more["classes"]).tolist()]
        return LoopTask(
            epochs=self.epochs,
            **of_batches,
            checkpoint=checkpoints.policy,
            resume=checkpoints.resume,
            run=checkpoints.run,
            configuration=begun_with,
        )


def learnt(outcome: Outcome) -> Any:
    """Return the estimator that training has left."""
    return _unpickled(outcome.header[_ESTIMATOR])


def _unpickled(content: bytes) -> Any:
    return pickle.loads(content)  # noqa: S301 - this estimator's own


# Parameters of estimators that do nothing to what is learnt.
_FREE = ("n_jobs", "verbose")


def _configuration(estimator: Any) -> dict[str, Any]:
    """Return what a checkpoint has to have been made with; objects that have no text of their own are left out."""
    configuration: dict[str, Any] = {"estimator": type(estimator).__name__}
    for name, value in estimator.get_params().items():
        if name.rpartition("__")[2] not in _FREE and " at 0x" not in repr(value):
            configuration[f"estimator__{name}"] = value if _is_plain(value) else repr(value)
    return configuration


def _is_plain(value: Any) -> bool:
    """Return whether a value equals itself when it was stored, unlike NaN."""
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value))


def _check_labels(labels: np.ndarray, classes: np.ndarray) -> None:
    odd = np.setdiff1d(labels, classes)
    if odd.size:
        raise ValueError(
            f"y has the label {odd.tolist()[0]!r}, which is none of the classes {classes.tolist()}. Name all of them, "
            "or leave classes= out of fit."
        )
