"""What the role process of an incremental estimator does: each batch is learnt once. Knows nothing of Dask."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.data.plan import Shuffle
from dask_train.errors import CheckpointError
from dask_train.role.refusals import Refusing

if TYPE_CHECKING:
    from dask_train.role.session import Session

_FILE = "estimator.pickle"


@dataclass(frozen=True, kw_only=True)
class Learning(Refusing):
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
        """Learn all batches.

        Raises
        ------
        CheckpointError
            The last checkpoint was begun with something else.
        ValueError
            A label is none of the classes, which few estimators see.
        """
        estimator, start = self.estimator, (0, 0)
        begun = self._begun_with(session.num_rows)
        folder = session.load_checkpoint() if self.keeps else None
        if folder is not None:
            estimator, start, then = pickle.loads((folder / _FILE).read_bytes())  # noqa: S301 - this estimator's own
            _check_same(then, begun)
        batches = session.batches(
            epochs=self.epochs, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed, start=start
        )

        def keep() -> None:
            content = pickle.dumps((estimator, session.position, begun))
            session.save_checkpoint(lambda folder: (folder / _FILE).write_bytes(content))

        is_kept = True
        for X, *others in batches:
            more = dict(self.more)
            if self.has_weights:
                more["sample_weight"] = others.pop()
            if "classes" in more:
                _check_labels(others[0], more["classes"])
            estimator.partial_fit(X, *others, **more)
            if is_kept := self.keeps and session.checkpoint_due():
                keep()
            if session.should_stop():
                break
        if self.keeps and not is_kept:
            keep()
        return estimator

    def _begun_with(self, num_rows: int) -> dict[str, str]:
        """What a checkpoint has to have been made with; objects that have no text of their own are left out."""
        params = {f"estimator__{name}": repr(value) for name, value in self.estimator.get_params().items()}
        found = {name: text for name, text in params.items() if " at 0x" not in text and not name.endswith(_FREE)}
        mine = {name: repr(getattr(self, name)) for name in ("batch_size", "shuffle", "seed")}
        return {"estimator": type(self.estimator).__name__, **found, **mine, "rows": f"{num_rows:,}"}


# Parameters of estimators that do nothing to what is learnt.
_FREE = ("__n_jobs", "__verbose")


def _check_labels(labels: np.ndarray, classes: np.ndarray) -> None:
    odd = np.setdiff1d(labels, classes)
    if odd.size:
        raise ValueError(
            f"y has the label {odd.tolist()[0]!r}, which is none of the classes {classes.tolist()}. Name all of them, "
            "or leave classes= out of fit."
        )


def _check_same(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    differing = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if differing:
        told = ", ".join(f"{name} was {then.get(name)}, and is {now.get(name)}" for name in differing)
        raise CheckpointError(
            f"The checkpoint was begun with something else: {told}.",
            change="Go on with the same estimator, batches and rows, or begin anew in another folder.",
        )
