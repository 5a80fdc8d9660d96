"""Tasks that ``fit`` sends to each role process; values that import neither Keras nor torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.columns import Columns
from dask_train.trainers.common.task import LoopTask

# Name of the data set on which the roles of a run validate the model.
VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """The user's own objects, which are trained in the client's process; never sent.

    Attributes
    ----------
    model : keras.Model or ModuleTraining
        The user's model; a torch module with its loss and optimizer.
    callbacks
        The user's callbacks, of a Keras model.
    """

    model: Any
    callbacks: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SupervisedTask(LoopTask):
    """A model that is trained on features and labels in epochs of batches, with the settings of its training.

    Attributes
    ----------
    header, arrays
        The pickled model, its large arrays apart. Empty if it is trained in the client's process without checkpoints.
    in_process
        The model itself, if it is trained in the client's process. Default: None.
    columns, validation_columns
        Roles of the columns of a batch; None without validation data.
    frame
        JSON of the frame's schema, for checkpoints. Default: None, the data is no frame.
    random
        State of torch's random generator in the client, with which the first worker begins. Default: None, ``seed``
        is used.
    validation_batch_size, validation_steps, validation_freq, wire
        As in :func:`dask_train.fit`.
    """

    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    columns: Columns
    in_process: InProcess | None = field(default=None, repr=False)
    validation_columns: Columns | None = None
    frame: dict[str, Any] | None = field(default=None, repr=False)
    random: np.ndarray | None = field(default=None, repr=False)
    validation_batch_size: int = 32
    validation_steps: int | None = None
    validation_freq: Any = 1
    wire: str | None = None


@dataclass(frozen=True, kw_only=True)
class FitTask(SupervisedTask):
    """A Keras model with the settings of its training, for :class:`~dask_train.fitting.roles.entry.FitRole`.

    Attributes
    ----------
    callbacks
        Pickled callbacks, for the first worker.
    class_weight
        Weights by class. Default: None, all count alike.
    num_classes
        Number of classes, if labels are class numbers below it. Default: None, they are not.
    new_learning_rate
        Whether training resumes with the model's learning rate in place of the checkpoint's. Default: false.
    several_workers
        Whether several workers train the model, now or later. Default: false.
    """

    callbacks: bytes = field(default=b"", repr=False)
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None
    new_learning_rate: bool = False
    several_workers: bool = False
