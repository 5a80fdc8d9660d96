"""What a search and a kind of model tell each other of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.fitting.data import FitData


def no_labels() -> np.ndarray:
    """Stand for labels of rows that lie nowhere."""
    raise AssertionError("the rows of this search lie nowhere")


@dataclass(frozen=True, kw_only=True)
class TrialRows:
    """Rows of all trials of a search.

    Attributes
    ----------
    data, validation
        What is trained on, and validated on; None without validation.
    workers
        Number of workers that train one model together.
    labels
        Return the different labels of what is trained on, ascending, which are computed where they lie.
    """

    data: FitData
    validation: FitData | None
    workers: int
    labels: Callable[[], np.ndarray] = no_labels


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """A trial that was built and checked.

    Attributes
    ----------
    work
        What the workers of the trial do; it travels to them. Of a model that is trained in a loop a ``LoopRole``.
    model
        Return what a search holds as the best model, of what the first worker has sent of its best epoch.
    """

    work: Any
    model: Callable[[Any], Any] = field(repr=False)
