"""What ``fit`` sends to each role process; values that import no Keras."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.columns import Columns
from dask_train.trainers.common.task import LoopTask

# Under this name the roles of a run find what the model is validated on.
VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """What is trained as it is, in the process that holds it; never sent.

    Attributes
    ----------
    model : keras.Model or ModuleTraining
        The user's own; a module of torch with what it is trained with.
    callbacks
        Theirs, too.
    """

    model: Any
    callbacks: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FitTask(LoopTask):
    """A model and how it is to be fitted; :class:`~dask_train.fitting.roles.entry.FitRole` does it.

    Attributes
    ----------
    header, arrays
        The model, taken apart; empty for one that is trained in place, without checkpoints.
    in_process
        The model itself and its callbacks, where they are trained in the process that holds them.
    columns, validation_columns
        What the columns of a batch mean; None without validation data.
    frame
        The schema of the frame whose columns these are, as JSON holds it; for checkpoints. None without a frame.
    callbacks
        Pickled; for the chief.
    validation_batch_size, validation_steps, validation_freq
        As in Keras.
    class_weight
        By class.
    num_classes
        Labels are below it; None if they are something else.
    new_learning_rate
        Whether, where training resumes, the learning rate is the model's own, not that of the checkpoint.
    wire
        As in :func:`dask_train.fit`.
    random
        The state of torch's random numbers in the client, with which the first worker begins; None for ``seed``.
    """

    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    columns: Columns
    in_process: InProcess | None = field(default=None, repr=False)
    validation_columns: Columns | None = None
    frame: dict[str, Any] | None = field(default=None, repr=False)
    callbacks: bytes = field(default=b"", repr=False)
    random: np.ndarray | None = field(default=None, repr=False)
    validation_batch_size: int = 32
    validation_steps: int | None = None
    validation_freq: Any = 1
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None
    new_learning_rate: bool = False
    wire: str | None = None
