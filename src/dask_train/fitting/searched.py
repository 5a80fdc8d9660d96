"""What a search asks of a kind of model: to check the model of a trial, and to say what its workers do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from dask_train.fitting.data import FitData
from dask_train.fitting.settings import EpochSettings
from dask_train.frameworks.base import Framework
from dask_train.trainers.settings import ModelSettings

# Settings of all kinds that each trial may have of its own.
_OF_EACH_TRIAL = ("batch_size", "epochs")


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


class SearchedKind(ABC):
    """A kind of model that :func:`dask_train.search` trains; :data:`dask_train.fitting.kinds.KINDS` lists them.

    Attributes
    ----------
    settings
        Arguments of ``dt.fit`` that these models take.
    """

    settings: type[ModelSettings]

    @property
    def of_trial(self) -> tuple[str, ...]:
        """Names of settings that ``build`` may return with a model: what is of this kind alone, and a few of all."""
        common = {each.name for each in fields(EpochSettings)}
        return (*_OF_EACH_TRIAL, *(each.name for each in fields(self.settings) if each.name not in common))

    @abstractmethod
    def framework(self) -> Framework:
        """Return the adapter of the processes that train these models."""

    @abstractmethod
    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Check the model of a trial as ``fit`` does, and return what is to be trained.

        Parameters
        ----------
        model
            As ``build`` has returned it.
        settings
            An instance of :attr:`settings`.
        rows
            What it is trained on.

        Raises
        ------
        ValueError, TypeError
            The model or a setting is invalid.
        """


def settings_of(kind: SearchedKind, model: Any, given: Mapping[str, Any], of_trial: Mapping[str, Any]) -> Any:
    """Return the settings of a trial: those of its search, as far as the kind has them, and its own.

    Raises
    ------
    TypeError, ValueError
        A setting is not one of this kind, is missing, or is invalid.
    """
    if unknown := sorted(map(str, set(of_trial) - set(kind.of_trial))):
        known = ", ".join(kind.of_trial) or "nothing beside the model"
        raise ValueError(f"build told {', '.join(unknown)} of a trial; it can tell {known}.")
    needed = [each.name for each in fields(kind.settings) if each.default is MISSING and each.name not in of_trial]
    if needed:
        told = ", ".join(f"{name!r}: ..." for name in needed)
        raise TypeError(
            f"dt.fit needs {', '.join(f'{name}=' for name in needed)} as well for a {type(model).__name__}: let build "
            f"return the model and a dict with them, {{{told}}}."
        )
    names = {each.name for each in fields(kind.settings)}
    return kind.settings.of({name: value for name, value in {**given, **of_trial}.items() if name in names})
