"""What dask-train knows of a kind of model: its part in the client, and its part in each role process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from dask_train.role.session import Session
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.settings import LoopSettings


class TrainSpec(ABC):
    """What travels to each worker: a value that can be pickled, without data."""

    @property
    def configuration(self) -> dict[str, Any]:
        """Return what training is begun with, as plain values; a checkpoint resumes with the same only."""
        return {}

    @abstractmethod
    def worker(self, session: Session, loop: TrainingLoop) -> None:
        """Train, in each worker: register the state with ``loop.keep``, then go through epochs and batches.

        Parameters
        ----------
        session
            Of the role: ranks, collective calls, notices.
        loop
            The training loop. Its batches are tuples of NumPy arrays: inputs, targets and weights, as far as there are
            any. What is trained are the shared parts of the state.
        """


class Trainer(ABC):
    """A kind of model for :func:`dask_train.fit`; see :func:`dask_train.register_trainer`.

    Attributes
    ----------
    model_class
        Class of the models.
    settings
        Arguments of ``dt.fit`` that they take, besides those of every run.
    """

    model_class: type
    settings: type[LoopSettings] = LoopSettings

    @abstractmethod
    def spec(self, model: Any, settings: Any, num_features: int | None) -> TrainSpec:
        """Check the model, and return what the workers need of it; in the client, before anything starts.

        Parameters
        ----------
        model
            An instance of :attr:`model_class`.
        settings
            An instance of :attr:`settings`.
        num_features
            Length of a row of the inputs, where that is known and a row has one dimension; else None.

        Raises
        ------
        ValueError, TypeError
            The model or a setting is invalid.
        """

    @abstractmethod
    def take(self, model: Any, trained: Mapping[str, Any]) -> None:
        """Let the user's model take over what was trained: the shared parts of the state, by name."""
