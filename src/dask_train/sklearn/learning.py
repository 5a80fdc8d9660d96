"""What the role process of an incremental estimator does: each batch is learnt once. Knows nothing of Dask."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_train.data.plan import Shuffle

if TYPE_CHECKING:
    from dask_train.role.session import Session

_FILE = "estimator.pickle"


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Called with a session, it learns all batches, and returns the estimator.

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

    def __call__(self, session: Session) -> Any:
        """Learn all batches."""
        estimator, start = self.estimator, (0, 0)
        folder = session.load_checkpoint() if self.keeps else None
        if folder is not None:
            estimator, start = pickle.loads((folder / _FILE).read_bytes())  # noqa: S301 - this estimator's own
        batches = session.batches(
            epochs=self.epochs, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed, start=start
        )
        for X, *others in batches:
            more = dict(self.more)
            if self.has_weights:
                more["sample_weight"] = others.pop()
            estimator.partial_fit(X, *others, **more)
            if self.keeps and session.checkpoint_due():
                _keep(session, estimator)
            if session.should_stop():
                break
        if self.keeps:
            _keep(session, estimator)
        return estimator


def _keep(session: Session, estimator: Any) -> None:
    def write(folder: Path) -> None:
        (folder / _FILE).write_bytes(pickle.dumps((estimator, session.position)))

    session.save_checkpoint(write)
