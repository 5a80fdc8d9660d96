"""What roles are told that fit boosted trees, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask_train.data.columns import Columns


@dataclass(frozen=True, kw_only=True)
class EvalSet:
    """Rows that are scored after each round.

    Attributes
    ----------
    name
        Under which the library keeps their scores.
    prefix
        Of the names of scores in the run.
    dataset
        Under which roles open them; empty for the rows that are trained on.
    columns
        Which column is what.
    """

    name: str
    prefix: str
    dataset: str
    columns: Columns


@dataclass(frozen=True, kw_only=True)
class TreesTask:
    """A fit of an estimator.

    Attributes
    ----------
    library
        ``"xgboost"`` or ``"lightgbm"``.
    estimator
        Not fitted; roles change their own copy.
    columns, evals
        Which column of its rows is what, and the rows that are scored.
    start
        A booster to go on with, as the estimator's own ``fit`` takes it; or None.
    settings
        More arguments of that ``fit``.
    keeps, resume
        Whether there are checkpoints, and whether the last one of any run is to go on with.
    streamed
        Whether the rows to train on are too many for memory.
    """

    library: str
    estimator: Any
    columns: Columns
    evals: tuple[EvalSet, ...] = ()
    start: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    keeps: bool = False
    resume: bool = False
    streamed: bool = False


@dataclass(frozen=True, kw_only=True)
class Grown:
    """What comes of a fit, in its first role.

    Attributes
    ----------
    estimator
        Fitted.
    history
        Of each score one value a round, from the first on; by their names in the run.
    num_rounds
        How many there were.
    callbacks
        What became of those that were arguments of ``fit``.
    """

    estimator: Any
    history: dict[str, list[float]]
    num_rounds: int
    callbacks: Sequence[Any] = ()
