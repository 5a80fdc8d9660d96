"""What each role does that fits boosted trees; it travels by name, and imports the library where it runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from dask_train.fitting.trees.callbacks import travelling
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.refusals import Refusing
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.entry import LoopObserver, LoopRole
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.rounds import RoundLoop

# How errors of the network between ranks look, which XGBoost and LightGBM raise as they do all others: the file of
# XGBoost's that found it, and the words of LightGBM's.
_OF_NETWORK = re.compile(r"/collective/(?!\.\.)|\bSocket \w+ error|\bConnecting to rank|\bBinding port")

# Objectives of XGBoost's classifiers: of more than two classes it sets the second in place of the first, and the fitted
# estimator has that.
_OF_CLASSES = ("'binary:logistic'", "'multi:softprob'")

# How many differences a message names.
_NAMED = 6


@dataclass(frozen=True)
class TreesRole(LoopRole, Refusing):
    """One rank of a fit.

    Attributes
    ----------
    task
        What to fit.
    """

    task: TreesTask

    __name__ = "fit"
    ends_with_all = True

    @property
    def _library(self) -> Any:
        return import_module(f"dask_train.fitting.trees.{self.task.library}_role")

    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Fit; the first rank returns the estimator and what became of callbacks of ``fit``, all others None."""
        library = self._library
        task = replace(self.task, configuration=configuration_of(self.task, session, free=library.FREE))
        loop = RoundLoop(task, session, SessionAgreement(session), check=check_same)
        if observe is not None:
            observe(loop)
        try:
            grown = library.grow(task, session, loop)
            return loop.outcome(lambda: grown if task.in_process else _sent(grown, session))
        finally:
            loop.settle()  # in the user's process nothing may be written afterwards

    def as_of(self, outcome: Outcome, epoch: int) -> dict[str, Any]:
        """Let the estimator predict with the rounds up to this one, as after early stopping."""
        self._library.end_with(outcome.header["estimator"], epoch)
        return outcome.header

    def refuses(self, error: BaseException) -> bool:
        """Return whether an error is the library's, or that of a check, and not one of the network between ranks."""
        is_of_library = type(error).__name__ in ("LightGBMError", "XGBoostError")  # which need not be imported
        return (is_of_library or super().refuses(error)) and not _OF_NETWORK.search(str(error))


def _sent(grown: dict[str, Any], session: Session) -> dict[str, Any]:
    """Return what was grown without what can't travel, which would keep the estimator from the user."""
    return {**grown, "callbacks": travelling(grown["callbacks"], session.notice)}


def configuration_of(task: TreesTask, session: Session, *, free: Set[str]) -> dict[str, Any]:
    """Return what a checkpoint has to have been made with, by name: parameters that are not free, and the data.

    Functions have no text by which they are known again, and are left out.
    """
    matrix = task.columns.matrix
    params = {name: repr(value) for name, value in task.estimator.get_params().items() if name not in free}
    if hasattr(task.estimator, "predict_proba") and params.get("objective") in _OF_CLASSES:
        params["objective"] = " or ".join(_OF_CLASSES)
    configuration = {name: value for name, value in params.items() if " at 0x" not in value}
    configuration |= {"rows": f"{session.num_rows:,}", "features": repr(matrix.names or matrix.row_shape[0])}
    if matrix.categories is not None:  # trees know them by their codes
        text = repr([known if known is None else list(known) for known in matrix.categories])
        long = f"{text[:100]}... {hashlib.sha256(text.encode()).hexdigest()[:8]}"
        configuration["categories"] = text if len(text) <= len(long) else long
    return configuration


def check_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that rounds continue with what they began with.

    Raises
    ------
    ValueError
        They do not; the message says what differs.
    """
    differing = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
    if differing:
        differences = ", ".join(
            f"{name}={then.get(name)!r} there and {now.get(name)!r} here" for name in differing[:_NAMED]
        )
        differences += f", and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise ValueError(
            f"The checkpoint is of another fit: {differences}. Go on with the same estimator and data; only "
            "n_estimators and the number of workers may differ. Or begin anew, in another folder or without "
            "resume=True."
        )


def check_same_scores(then: Collection[tuple[str, str]], now: Collection[tuple[str, str]]) -> None:
    """Check that rounds are scored as those before them: the same metrics of the same data sets.

    Raises
    ------
    ValueError
        They are not; lists of scores would have no value of some rounds.
    """
    if set(then) != set(now):
        there, here = (
            ", ".join(f"{metric} of {name}" for name, metric in sorted(set(pairs))) or "none" for pairs in (then, now)
        )
        raise ValueError(
            f"The scores of the checkpoint are {there}, and those of this call are {here}. Pass the validation sets "
            "and metrics of then. Or begin anew, in another folder or without resume=True."
        )
