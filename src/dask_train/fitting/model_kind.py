"""The interface of ``dt.fit`` and ``dt.search`` to a kind of model; :mod:`dask_train.fitting.start` calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.driver.result import Result
from dask_train.driver.settings import RunInputs, RunSettings
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

if TYPE_CHECKING:
    from dask_train.role.session import Session


# Settings of all kinds that ``build`` may return for a trial.
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
        Number of workers, 0 for this process. None: it is not known yet. A run that follows the cluster has its
        least number here first, and later the number that it begins with.
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
        Rows to train on, and rows to score, of a type that the kind of model chooses.
    inputs
        The same rows as arguments of a run.
    """

    data: Any
    validation: Any = None
    inputs: RunInputs


@dataclass(frozen=True, kw_only=True, eq=False)
class FitWork:
    """The functions of a fit's role processes, and how the client turns their result into the user's.

    Attributes
    ----------
    functions
        Function of the workers, or functions by role.
    finish
        Return what the verb returns, given the run's result. Of a fit that is a :class:`~dask_train.FitResult`; the
        user's model takes over what was trained.
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
        Rows to train on, and rows to validate on; None without validation.
    workers
        Number of workers that train one model together.
    labels
        Return the distinct labels of the rows to train on, ascending. They are computed on the Dask workers.
    missing
        Return an error message about missing categories, whose codes are -1; ``""`` if there are none.
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
        Function of the trial's workers, sent to them; a ``LoopRole`` for a model that is trained in a loop.
    model
        Return the search's best model, given the state that the first worker has sent of its best epoch.
    scores
        Names of the scores of an epoch, with those of validation. Default: unknown until training reports them.
    """

    work: Any
    model: Callable[[Any], Any] = field(repr=False)
    scores: Collection[str] | None = None


class ModelKind(ABC):
    """A kind of model that ``dt.fit`` and ``dt.search`` train.

    :data:`dask_train.fitting.kinds.KINDS` lists all kinds but Keras, which serves models of unknown classes.

    A fit calls :meth:`workers`, :meth:`check`, :meth:`traits`, :meth:`framework`, :meth:`roles`, :meth:`scores` and
    :meth:`check_best`; then :meth:`rows` and :meth:`prepared`; then, if no number of workers was asked for,
    :meth:`one_per_dask_worker` and :meth:`shared`; and in the end :meth:`check_together` and :meth:`work`. Checks that
    need no cluster belong into those up to :meth:`prepared`.

    Attributes
    ----------
    name
        Name in the table of refusals, :data:`dask_train.fitting.refusals.REFUSED`.
    settings
        Class of the arguments of these models, besides the arguments of every run.
    not_taken
        Arguments in ``settings``, or of every run, that ``dt.fit`` refuses.
    unit
        Unit in which stop rules count training, such as ``"epoch"``.
    grows
        Whether workers may join and leave while a model is trained.
    takes_missing
        Whether rows of a trial may have the category code -1, which stands for a missing value.
    """

    name: str
    settings: type[ModelSettings]
    not_taken: tuple[str, ...] = ()
    unit: str = EPOCH
    grows: bool = False
    takes_missing: bool = False

    def workers(self, model: Any, settings: Any) -> int | None:
        """Return the number of workers that was passed; 0 for this process, None for the default."""
        workers: int | None = settings.workers
        return workers

    def roles(self, call: FitCall) -> dict[str, int]:
        """Return the number of processes of each role; 0 workers while their number is not known yet."""
        return {"worker": call.workers or 0}

    def check(self, call: FitCall) -> None:  # noqa: B027 - of most there is more to check, not of all
        """Check the model, and the settings of this kind; rows are not looked at.

        Raises
        ------
        TypeError, ValueError
            The model or a setting is invalid.
        """

    def traits(self, call: FitCall) -> Collection[str]:
        """Return facts about the model that the table of refusals can name."""
        return ()

    def scores(self, call: FitCall) -> Collection[str] | None:
        """Return the names of a model's scores without validation; None if only training shows them."""
        return None

    def check_best(self, call: FitCall) -> None:
        """Check that training can report the score that ``dt.Checkpoint(best=...)`` names.

        Raises
        ------
        ValueError
            It can't.
        """
        num_servers = self.roles(call).get("ps", 0)
        check_best_of_fit(call.run.checkpoint, validates=call.settings.validates, ps=num_servers)
        check_best_name(call.run.checkpoint, self.scores(call), validates=call.settings.validates)

    def columns(self, call: FitCall) -> tuple[Any, Any]:
        """Return ``features`` and ``label``, with this kind's defaults."""
        return call.settings.features, call.settings.label

    def rows(self, call: FitCall) -> FitRows:
        """Return the rows, partitioned for the workers where that is needed.

        Most kinds only describe the rows here. Linear models compute their classes.

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
        """Check that the model takes the rows, and return the results of the check that :meth:`work` needs.

        Raises
        ------
        TypeError, ValueError
            It does not.
        """

    def shared(self, call: FitCall, rows: FitRows, workers: int) -> tuple[FitRows, int]:
        """Return the rows for that many workers, and the number to start; called where no number was passed."""
        return rows, workers

    def one_per_dask_worker(self, call: FitCall) -> bool:
        """Return whether the default is one worker per Dask worker, not one per host or device."""
        return False

    def check_together(self, model: Any, settings: Any, workers: int) -> None:
        """Check that this number of workers can train a model together, in a fit or a trial.

        Raises
        ------
        ValueError
            They can't.
        """
        if isinstance(settings, LoopSettings):
            check_share(settings.rows, workers)

    def needs_one_host(self, call: FitCall) -> bool:
        """Return whether all workers of this run have to be on one host."""
        return False

    def size_check(self, call: FitCall) -> Callable[[int], None] | None:
        """Return a function that checks whether a number of workers can share a batch, for a run that is resized.

        The function holds no data. None: this run keeps its number of workers.
        """
        return partial(check_share, call.settings.rows)

    @abstractmethod
    def work(self, call: FitCall, rows: FitRows, prepared: Any) -> FitWork:
        """Return the functions of a fit's processes; ``prepared`` is the result of :meth:`prepared`."""

    @property
    def trial_settings(self) -> tuple[str, ...]:
        """Names of settings that ``build`` may return per trial: batch_size, epochs, and those of this kind alone."""
        common = {each.name for each in fields(EpochSettings)}
        return (*_OF_EACH_TRIAL, *(each.name for each in fields(self.settings) if each.name not in common))

    def settings_of_trial(self, model: Any, arguments: Mapping[str, Any], built_settings: Mapping[str, Any]) -> Any:
        """Return the settings of a trial: the search's, as far as this kind has them, overridden by the trial's own.

        Raises
        ------
        TypeError, ValueError
            A setting is unknown to this kind, is missing, or is invalid.
        """
        if unknown := sorted(map(str, set(built_settings) - set(self.trial_settings))):
            known = ", ".join(self.trial_settings) or "nothing beside the model"
            raise ValueError(f"build told {', '.join(unknown)} of a trial; it can tell {known}.")
        required = [each.name for each in fields(self.settings) if each.default is MISSING]
        needed = [name for name in required if name not in built_settings]
        if needed:
            entries = ", ".join(f"{name!r}: ..." for name in needed)
            raise TypeError(
                f"dt.fit needs {', '.join(f'{name}=' for name in needed)} as well for a {type(model).__name__}: let "
                f"build return the model and a dict with them, {{{entries}}}."
            )
        return self.settings.of({**arguments, **built_settings})

    @abstractmethod
    def framework(self, *, in_place: bool = False) -> Framework:
        """Return the processes' framework adapter; ``in_place``: a lost process is replaced while the others wait."""

    @abstractmethod
    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Check the model of a trial as ``fit`` does, and return the trial.

        Parameters
        ----------
        model
            Model that ``build`` has returned.
        settings
            An instance of :attr:`settings`.
        rows
            Rows to train on.

        Raises
        ------
        ValueError, TypeError
            The model or a setting is invalid.
        """
