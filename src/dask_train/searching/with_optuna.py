"""A search with Optuna, whatever its trials train: from a call's settings to its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dask_train.driver.handle import Run
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.fitting.model_kind import TrialSpec
from dask_train.inputs.data import InputData
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.checks import check_best
from dask_train.searching.going_on import SearchState, check_goes_on
from dask_train.searching.kept import kept_search
from dask_train.searching.logged import search_log
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.place import DATA, DataPlace, checked, opened
from dask_train.searching.pool import PoolSettings, trained
from dask_train.searching.result import SearchResult
from dask_train.searching.settings import StudySettings
from dask_train.searching.texts import code_text


@dataclass(frozen=True, kw_only=True)
class TrialMaking:
    """How trials are made and trained, once the data is on the cluster.

    Attributes
    ----------
    spec
        Return what is trained for a trial of Optuna.
    start
        Start the run of a slot; None if there is no trial for it.
    fixed
        What has to be the same where the search is resumed, and is known of the data alone.
    """

    spec: Callable[[Any], TrialSpec]
    start: Callable[[OptunaStudy, RunInputs, RunSettings], Run[Any] | None]
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject(ABC):
    """What a search with Optuna is over: a kind of model, and the data.

    Attributes
    ----------
    metric
        The score that counts.
    keeps_trials
        Whether trials keep checkpoints of their own, where the search does.
    data
        Data sets by name.
    """

    metric: str
    keeps_trials: bool
    data: Mapping[str, InputData]

    @property
    @abstractmethod
    def pool(self) -> PoolSettings:
        """Processes that train the trials."""

    @abstractmethod
    def fixed(self) -> dict[str, Any]:
        """Return what has to be the same where the search is resumed, besides what is of every search."""

    def logged(self) -> dict[str, Any]:
        """Return what else places of ``log=`` get of the call."""
        return {}

    @abstractmethod
    def making(self, place: DataPlace) -> TrialMaking:
        """Return how trials are made."""


def search_with_optuna(build: Any, subject: Subject, settings: StudySettings, run: RunSettings) -> SearchResult:
    """Search with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid.
    """
    data, metric = checked(subject.data, run), subject.metric
    study = None if settings.study is None else settings.open_study()
    direction = settings.direction or ("maximize" if study is None else study.directions[0].name.lower())
    arguments = {"build": code_text(build), "metric": metric, "direction": direction, "seed": settings.seed}
    arguments |= subject.fixed()
    check_best(run.checkpoint, metric, direction)
    with ExitStack() as stack:
        kept = None
        if run.checkpoint is not None:
            keeping = kept_search(
                run.checkpoint, arguments, SearchState, resume=run.resume, of_trials=subject.keeps_trials
            )
            kept = stack.enter_context(keeping)
        state = None if kept is None else kept.state
        if study is None:
            study = settings.open_study(None if state is None else state.study_name)
        if kept is not None:
            check_goes_on(study, build, state)
        keeps = None if kept is None or kept.folders is None else kept.place
        place = stack.enter_context(opened(data, run, subject.pool, keeps))
        making = subject.making(place)
        if kept is not None:
            kept.check_same({**place.description, **making.fixed})
        logged = {**arguments, **subject.logged(), "trials": settings.trials}
        log = stack.enter_context(search_log(run.log, study.study_name, logged))
        trials = OptunaStudy(
            study,
            making.spec,
            metric=metric,
            most=settings.trials,
            timeout_s=settings.timeout_s,
            sampler_seed=settings.seed if settings.has_default_sampler and state is None else None,
            kept=kept,
            log=log,
            schema=place.data[DATA].schema,
        )
        stack.callback(trials.close)  # also if its slots can't be made
        slots = place.slots(partial(making.start, trials), trials, num_trials=settings.trials)
        display = SearchDisplay(run.progress, metric=metric, trials=settings.trials)
        return trained(slots, trials, display, SearchResult)
