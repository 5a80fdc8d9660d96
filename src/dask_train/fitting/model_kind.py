"""What ``dt.fit`` asks of a kind of model; what all kinds share stands once, in :mod:`dask_train.fitting.start`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dask_train.collections.schema.conformer import Conformer
from dask_train.driver.result import Result
from dask_train.fitting.checks import check_best_of_fit, check_share
from dask_train.fitting.data import FitData, fit_data, inputs_of, split_off, validation_of
from dask_train.fitting.result import FitResult
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.searched import TrialRows, TrialSpec
from dask_train.fitting.settings import EpochSettings
from dask_train.frameworks.base import Framework
from dask_train.report.progress import RunDisplay
from dask_train.run.stop_rule import EPOCH
from dask_train.trainers.settings import LoopSettings, ModelSettings
from dask_train.training.settings import RunInputs, RunSettings

if TYPE_CHECKING:
    from dask_train.role.session import Session


# Settings of all kinds that each trial may have of its own.
_OF_EACH_TRIAL = ("batch_size", "epochs")


@dataclass(frozen=True, kw_only=True, eq=False)
class FitCall:
    """A call of ``dt.fit``.

    Attributes
    ----------
    model, x, y
        As the user passed them.
    settings
        Of the class that the kind of model has: :attr:`ModelKind.settings`.
    run
        Settings of the run.
    """

    model: Any
    x: Any
    y: Any
    settings: Any
    run: RunSettings

    def rows(self, features: Any, label: Any) -> FitRows:
        """Return the data, and what is validated on, of a model that goes through rows in batches.

        Parameters
        ----------
        features, label
            Columns of frames, as this model means them.

        Raises
        ------
        TypeError, ValueError
            They can't be put together.
        """
        settings = self.settings
        like = Conformer(learnt_for(self.model, getattr(settings, "schema", None)))
        data = fit_data("data", self.x, self.y, settings.sample_weight, features=features, label=label, like=like)
        validation: FitData | None = None
        if isinstance(settings, EpochSettings) and settings.validation_data is not None:
            weights = settings.sample_weight
            validation = validation_of(settings.validation_data, features, label, weights, data.schema)
        elif isinstance(settings, EpochSettings) and settings.validation_split:
            data, validation = split_off(data, settings.validation_split)
        return FitRows(data=data, validation=validation, inputs=inputs_of(data, validation))


@dataclass(frozen=True, kw_only=True, eq=False)
class FitRows:
    """Rows of a fit.

    Attributes
    ----------
    data, validation
        What is trained on, and scored; of a type that the kind of model chooses.
    inputs
        The same as a run takes it.
    """

    data: Any
    validation: Any = None
    inputs: RunInputs


@dataclass(frozen=True, kw_only=True, eq=False)
class FitWork:
    """What the role processes of a fit do, and what comes of it.

    Attributes
    ----------
    functions
        What the workers do, or what each role does, by role.
    framework
        Adapter of the processes, or its name.
    finish
        Makes the result of the run's; the user's model takes over what was trained.
    params
        Parameters for loggers.
    display
        Shows the run while the call waits.
    """

    functions: Callable[[Session], Any] | Mapping[str, Callable[[Session], Any]]
    framework: str | Framework
    finish: Callable[[Result], FitResult]
    params: Mapping[str, Any] = field(default_factory=dict)
    display: Callable[..., Any] = RunDisplay


class ModelKind(ABC):
    """A kind of model that ``dt.fit`` and ``dt.search`` train; :data:`dask_train.fitting.kinds.KINDS` lists them.

    Of a fit the methods are called in the order in which they stand here. All checks that need no cluster are in those
    before :meth:`shared`.

    Attributes
    ----------
    settings
        Arguments that these models take, besides those of every run.
    not_taken
        Those of these, or of every run, that ``dt.fit`` does not take.
    unit
        What a rule to stop by counts, besides scores.
    grows
        Whether workers may join and leave while a model is trained.
    """

    settings: type[ModelSettings]
    not_taken: tuple[str, ...] = ()
    unit: str = EPOCH
    grows: bool = False

    def workers(self, call: FitCall) -> int | None:
        """Return how many workers were asked for; 0 for this process, None for the default."""
        workers: int | None = call.settings.workers
        return workers

    def roles(self, call: FitCall, workers: int) -> dict[str, int]:
        """Return how many processes there are of each role, with so many workers."""
        return {"worker": workers}

    def check(self, call: FitCall) -> None:  # noqa: B027 - of most there is more to check, not of all
        """Check the model, and settings that are of this kind alone; rows are not looked at.

        Raises
        ------
        TypeError, ValueError
            One can't be.
        """

    def scores(self, call: FitCall) -> Collection[str] | None:
        """Return the names of scores of a model, without those of validation; None if they show in training only."""
        return None

    def check_best(self, call: FitCall) -> None:
        """Check that the score by which the best checkpoint is known can come.

        Raises
        ------
        ValueError
            It can't.
        """
        check_best_of_fit(call.run.checkpoint, validates=call.settings.validates, ps=0)

    def rows(self, call: FitCall) -> FitRows:
        """Return the rows, which are described and not computed; cut for :meth:`workers` where they have to be cut.

        Raises
        ------
        TypeError, ValueError
            They can't be put together.
        """
        return call.rows(call.settings.features, call.settings.label)

    @abstractmethod
    def prepared(self, call: FitCall, rows: FitRows) -> Any:
        """Check that the rows go through the model, and return what :meth:`work` needs of that.

        Raises
        ------
        TypeError, ValueError
            They do not.
        """

    def shared(self, call: FitCall, rows: FitRows, workers: int) -> tuple[FitRows, int]:
        """Return rows that so many workers share, and how many workers there are to be, if no number was asked for."""
        return rows, workers

    def one_per_dask_worker(self, call: FitCall) -> bool:
        """Return whether the default is a worker for each Dask worker, not for each host or device."""
        return False

    def check_workers(self, call: FitCall, rows: FitRows, workers: int) -> None:
        """Check that so many workers can train a model together.

        Raises
        ------
        ValueError
            They can't.
        """
        if isinstance(call.settings, LoopSettings):
            check_share(call.settings.rows, workers)

    @abstractmethod
    def work(self, call: FitCall, rows: FitRows, prepared: Any, workers: int) -> FitWork:
        """Return what the processes of a fit do; with ``workers=0`` one worker does it, in this process.

        Parameters
        ----------
        call, rows
            What is trained, on what.
        prepared
            As :meth:`prepared` has returned it.
        workers
            Number of workers, at least 1.
        """

    @property
    def of_trial(self) -> tuple[str, ...]:
        """Names of settings that ``build`` may return with a model: what is of this kind alone, and a few of all."""
        common = {each.name for each in fields(EpochSettings)}
        return (*_OF_EACH_TRIAL, *(each.name for each in fields(self.settings) if each.name not in common))

    def settings_of_trial(self, model: Any, given: Mapping[str, Any], of_trial: Mapping[str, Any]) -> Any:
        """Return the settings of a trial: those of its search, as far as the kind has them, and its own.

        Raises
        ------
        TypeError, ValueError
            A setting is not one of this kind, is missing, or is invalid.
        """
        if unknown := sorted(map(str, set(of_trial) - set(self.of_trial))):
            known = ", ".join(self.of_trial) or "nothing beside the model"
            raise ValueError(f"build told {', '.join(unknown)} of a trial; it can tell {known}.")
        needed = [each.name for each in fields(self.settings) if each.default is MISSING and each.name not in of_trial]
        if needed:
            told = ", ".join(f"{name!r}: ..." for name in needed)
            raise TypeError(
                f"dt.fit needs {', '.join(f'{name}=' for name in needed)} as well for a {type(model).__name__}: let "
                f"build return the model and a dict with them, {{{told}}}."
            )
        return self.settings.of({**given, **of_trial})

    @abstractmethod
    def framework(self) -> Framework:
        """Return the adapter of the processes that train trials."""

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
