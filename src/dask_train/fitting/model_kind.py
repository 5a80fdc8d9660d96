"""What ``dt.fit`` asks of a kind of model; what all kinds share stands once, in :mod:`dask_train.fitting.start`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.driver.result import Result
from dask_train.fitting.checks import check_best_of_fit, check_share
from dask_train.fitting.data import rows_of, run_inputs
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.settings import EpochSettings
from dask_train.fitting.stop_checks import check_best_name
from dask_train.frameworks.base import Framework
from dask_train.inputs.data import InputData
from dask_train.report.progress import RunDisplay
from dask_train.run.stop_rule import EPOCH
from dask_train.trainers.settings import LoopSettings, ModelSettings
from dask_train.training.settings import RunInputs, RunSettings

if TYPE_CHECKING:
    from dask_train.role.session import Session


# Settings that every kind lets a trial have of its own.
_OF_EACH_TRIAL = ("batch_size", "epochs")


@dataclass(frozen=True, kw_only=True, eq=False)
class FitCall:
    """A call of ``dt.fit``.

    Attributes
    ----------
    model, x, y
        As the user passed them.
    settings
        An instance of :attr:`ModelKind.settings`.
    run
        Settings of the run.
    workers
        Number of workers, 0 for this process. None: it is not known yet. Of a run that follows the cluster first the
        least number, and then the one that it begins with.
    """

    model: Any
    x: Any
    y: Any
    settings: Any
    run: RunSettings
    workers: int | None

    @property
    def in_place(self) -> bool:
        """Return whether a lost worker is to be replaced while the others wait."""
        return self.run.recovery is not None and self.run.recovery.scope == "in_place"


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
    finish
        Makes what the verb returns of the run's result: of a fit a :class:`~dask_train.FitResult`, and the user's model
        takes over what was trained.
    params
        Parameters for loggers.
    display
        Shows the run while the call waits.
    """

    functions: Callable[[Session], Any] | Mapping[str, Callable[[Session], Any]]
    finish: Callable[[Result], Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    display: Callable[..., Any] = RunDisplay


def no_labels() -> np.ndarray:
    """Raise: these rows have no labels that can be read."""
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
    missing
        Return an error's text about missing categories, whose codes are -1; ``""`` if there are none.
    """

    data: InputData
    validation: InputData | None
    workers: int
    labels: Callable[[], np.ndarray] = no_labels
    missing: Callable[[], str] = str


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


class ModelKind(ABC):
    """A kind of model that ``dt.fit`` and ``dt.search`` train.

    :data:`dask_train.fitting.kinds.KINDS` lists all but Keras models, which are what no other kind claims.

    A fit calls :meth:`workers`, :meth:`check`, :meth:`traits`, :meth:`framework`, :meth:`roles`, :meth:`scores` and
    :meth:`check_best`; then :meth:`rows` and :meth:`prepared`; then, if no number of workers was asked for,
    :meth:`one_per_dask_worker` and :meth:`shared`; and in the end :meth:`check_together` and :meth:`work`. Checks that
    need no cluster belong into those up to :meth:`prepared`.

    Attributes
    ----------
    name
        By which the table of refusals knows it: :data:`dask_train.fitting.refusals.REFUSED`.
    settings
        Arguments that these models take, besides those of every run.
    not_taken
        Those of these, or of every run, that ``dt.fit`` does not take.
    unit
        What a rule to stop by counts, besides scores.
    grows
        Whether workers may join and leave while a model is trained.
    takes_missing
        Whether the code of a category may be -1, for a missing one, among the rows of a trial.
    """

    name: str
    settings: type[ModelSettings]
    not_taken: tuple[str, ...] = ()
    unit: str = EPOCH
    grows: bool = False
    takes_missing: bool = False

    def workers(self, model: Any, settings: Any) -> int | None:
        """Return how many workers were asked for; 0 for this process, None for the default."""
        workers: int | None = settings.workers
        return workers

    def roles(self, call: FitCall) -> dict[str, int]:
        """Return how many processes there are of each role; 0 workers where their number is not known yet."""
        return {"worker": call.workers or 0}

    def check(self, call: FitCall) -> None:  # noqa: B027 - of most there is more to check, not of all
        """Check the model, and settings that are of this kind alone; rows are not looked at.

        Raises
        ------
        TypeError, ValueError
            One can't be.
        """

    def traits(self, call: FitCall) -> Collection[str]:
        """Return facts about the model that the table of refusals can name."""
        return ()

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
        num_servers = self.roles(call).get("ps", 0)
        check_best_of_fit(call.run.checkpoint, validates=call.settings.validates, ps=num_servers)
        check_best_name(call.run.checkpoint, self.scores(call), validates=call.settings.validates)

    def columns(self, call: FitCall) -> tuple[Any, Any]:
        """Return ``features`` and ``label`` as this model means them."""
        return call.settings.features, call.settings.label

    def rows(self, call: FitCall) -> FitRows:
        """Return the rows; cut for the workers where they have to be cut.

        Most kinds only describe them here. Linear models compute their classes.

        Raises
        ------
        TypeError, ValueError
            They can't be put together.
        """
        settings = call.settings
        features, label = self.columns(call)
        known = learnt_for(call.model, settings.schema if isinstance(settings, EpochSettings) else None)
        data, validation = rows_of(settings, call.x, call.y, features=features, label=label, known=known)
        return FitRows(data=data, validation=validation, inputs=run_inputs(data, validation))

    @abstractmethod
    def prepared(self, call: FitCall, rows: FitRows) -> Any:
        """Check that the rows go through the model, and return what :meth:`work` needs of that.

        Raises
        ------
        TypeError, ValueError
            They do not.
        """

    def shared(self, call: FitCall, rows: FitRows, workers: int) -> tuple[FitRows, int]:
        """Return the rows for so many workers, and how many there are to be; called if no number was asked for."""
        return rows, workers

    def one_per_dask_worker(self, call: FitCall) -> bool:
        """Return whether the default is a worker for each Dask worker, not for each host or device."""
        return False

    def check_together(self, model: Any, settings: Any, workers: int) -> None:
        """Check that so many workers can train a model together, in a fit or a trial.

        Raises
        ------
        ValueError
            They can't.
        """
        if isinstance(settings, LoopSettings):
            check_share(settings.rows, workers)

    def size_check(self, settings: Any) -> Callable[[int], None]:
        """Return what checks that so many workers can share a batch, in a run that is asked for another number.

        It holds no data.
        """
        return partial(check_share, settings.rows)

    @abstractmethod
    def work(self, call: FitCall, rows: FitRows, prepared: Any) -> FitWork:
        """Return what the processes of a fit do; ``prepared`` is what :meth:`prepared` has returned."""

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
            entries = ", ".join(f"{name!r}: ..." for name in needed)
            raise TypeError(
                f"dt.fit needs {', '.join(f'{name}=' for name in needed)} as well for a {type(model).__name__}: let "
                f"build return the model and a dict with them, {{{entries}}}."
            )
        return self.settings.of({**given, **of_trial})

    @abstractmethod
    def framework(self, *, in_place: bool = False) -> Framework:
        """Return the adapter of the processes; ``in_place`` where a lost one is to be replaced while others wait."""

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
