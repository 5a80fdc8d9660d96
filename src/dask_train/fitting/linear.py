"""``fit`` of linear models: a run whose steps are those of the solver."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.arguments import takes
from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.frame_schema import names_in, schema_of
from dask_train.driver.handle import Run
from dask_train.driver.result import Result, RunAccount
from dask_train.fitting.logged import params_of_estimator
from dask_train.fitting.result import FitResult
from dask_train.fitting.settings import of_run
from dask_train.fitting.stop_checks import check_stop_names
from dask_train.input_errors import warn_at_the_call
from dask_train.linear_model.estimating import LinearEstimator
from dask_train.linear_model.posed import Posed
from dask_train.report.account import MetricCurves
from dask_train.shared_data.published import PublishedDataset
from dask_train.trainers.common.task import LoopTask
from dask_train.trainers.settings import ModelSettings
from dask_train.training.settings import RunSettings

# Parameters that may be others where a fit resumes.
_FREE = frozenset({"max_iter", "warm_start", "workers"})


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearResult(FitResult):
    """What ``fit`` returns for linear models: a :class:`~dask_train.FitResult` whose epochs are steps of the solver.

    Attributes
    ----------
    model
        The fitted estimator, the very object that was passed.
    history
        ``"loss"``: what is minimised, with its penalties, after each step with all rows; of several targets one after
        the other. Empty for models that are fitted in one pass.
    epoch
        The numbers of the steps, from 0.
    all_reduce_s, waiting_s
        Not a number: they are not measured.
    schema, scores, ledger, attempts, stop_reason, run_id, notices
        As in :class:`~dask_train.FitResult`; each row counts once.
    """

    def _save(self, folder: Path) -> list[Path]:
        """Write the ledger, the page, and the estimator as a pickle."""
        files = RunAccount._save(self, folder)
        path = folder / "model.pickle"
        path.write_bytes(cloudpickle.dumps(self.model))
        return [*files, *(self._page(folder) if self.epoch else []), path]

    def _metrics(self) -> MetricCurves:
        return MetricCurves(self.history, self.epoch, "step")

    def _values(self) -> list[tuple[str, str]]:
        model, (_, steps), *others = super()._values()
        return [model, ("steps", steps), *others]


@takes(ModelSettings, RunSettings, without=("streaming", "gpus"))
def fit_linear(model: Any, x: Any = None, y: Any = None, **given: Any) -> FitResult | Run[FitResult]:
    """Fit a linear model on the Dask cluster that holds the rows; :func:`dask_train.fit` calls it.

    Parameters
    ----------
    model
        An estimator of :mod:`dask_train.linear_model`. It is fitted in place.
    x, y
        As of the estimator's own ``fit``; or a frame, with ``label`` and perhaps ``features``.
    **given
        Fields of :class:`ModelSettings` and :class:`~dask_train.training.settings.RunSettings`. ``workers`` is by
        default that of the estimator. ``stop`` looks at ``loss``, what is minimised, which is reported after each step.
        A checkpoint is kept as ``checkpoint`` says, by default one per minute, and where the fit ends or is stopped.
        What resumes takes the very steps that are left, with as many workers that have the same rows to the last bit.
        ``max_iter`` and ``workers`` may be others, but ``admm`` needs the number of workers that it began with.

    Returns
    -------
    LinearResult, or Run where ``wait`` is false.

    Raises
    ------
    ValueError, TypeError
        An argument or the data is invalid, also where a worker sees it.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`.
    """
    settings = ModelSettings.of(given)
    run = RunSettings.of(given, progress=settings.progress, gpus=None).named("fit")
    _check(model, run)
    rows = _rows(x, y, settings)
    workers = model.workers if settings.workers is None else settings.workers
    with nullcontext() if run.client is None else run.client.as_current():
        posed: Posed = model._posed(*rows, workers)
    task = LoopTask(**of_run(run), configuration=_configuration(model, posed) if run.checkpoint else {})
    started: FitResult | Run[FitResult] = posed.start(
        run,
        workers,
        finish=partial(_fitted, model=model, posed=posed, targets=_targets(x, settings.label)),
        task=task,
        params=params_of_estimator(model),
    )
    return started


def _check(model: LinearEstimator, run: RunSettings) -> None:
    """Check that a run's settings can be those of a linear model.

    Raises
    ------
    ValueError
        One can't.
    """
    kept, name = run.checkpoint, type(model).__name__
    given = [each for each in ("stop", "checkpoint") if getattr(run, each)]
    if run.recovery is not None and run.recovery.scope == "in_place":
        given.append("recovery='in_place'")
    if not hasattr(model, "solver") and given:
        raise ValueError(
            f"{name} is fitted in one pass over the rows, so there is no step at which {' or '.join(given)} could act. "
            "Leave it out."
        )
    if kept is not None and kept.best is not None:
        raise ValueError(
            "checkpoint has best=, and a linear model is the best one where its solver ends. Leave best out of "
            "dt.Checkpoint."
        )
    run.needs(["worker"])
    check_stop_names(run.stop, validates=False, known={"loss"})


def _rows(x: Any, y: Any, settings: ModelSettings) -> tuple[Any, Any, Any]:
    """Return features, targets and weights, cut from a frame where columns are named.

    Raises
    ------
    TypeError, ValueError
        They are named otherwise than as columns of a frame, or there are no targets.
    """
    features, label, weight = settings.features, settings.label, settings.sample_weight
    if isinstance(x, PublishedDataset):
        raise TypeError(
            "x is a published data set, which linear models do not take yet. Pass the arrays of dt.persist, or the "
            "collection that was published."
        )
    named = [each for each in (features, label, weight if isinstance(weight, str) else None) if each is not None]
    if named and not hasattr(x, "iloc") and not hasattr(x, "map_partitions"):
        raise ValueError(f"features, label or sample_weight name columns, and x is a {type(x).__name__}, not a frame.")
    if isinstance(features, Mapping) or isinstance(label, Mapping):
        raise ValueError("features and label of a linear model are names of columns, not dicts.")
    if y is None and label is None:
        raise ValueError("A linear model needs targets. Pass y, or a frame with label='column'.")
    if y is not None and label is not None:
        raise ValueError("Targets are given twice, as y and as label. Pass one of them.")
    if not named:
        return x, y, weight
    labels = [] if label is None else [label] if isinstance(label, str) else list(label)
    others = [*labels, *([weight] if isinstance(weight, str) else [])]
    if features is None:
        chosen = [name for name in x.columns if name not in others]
    else:
        chosen = [features] if isinstance(features, str) else list(features)
    if missing := [name for name in [*chosen, *others] if name not in x.columns]:
        raise ValueError(f"The frame has no column {missing[0]!r}; it has {', '.join(map(repr, x.columns[:20]))}.")
    targets = y if label is None else x[label if isinstance(label, str) else labels]
    return x[chosen], targets, x[weight] if isinstance(weight, str) else weight


def _configuration(model: LinearEstimator, posed: Posed) -> dict[str, Any]:
    """Return what a checkpoint has to have been made with, besides the rows: the problem, as plain values."""
    given = {name: value for name, value in model.get_params().items() if name not in _FREE}
    params = {name: value if isinstance(value, str) else repr(value) for name, value in given.items()}
    found = {"model": type(model).__name__, "num_features": int(posed.columns[0].shape[1]), **params}
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        found["features"] = [str(name) for name in names]
    classes = getattr(posed.problem, "classes", None)
    if classes is not None:
        found["classes"] = [repr(each) for each in np.asarray(classes).tolist()]
    return found


def _targets(x: Any, label: Any) -> tuple[FrameColumn, ...]:
    """Return the columns of a frame that are targets as they are, by which an evaluation finds them."""
    if label is None:
        return ()
    found = schema_of("x", x, list(names_in(label)), ()).columns
    return () if any(isinstance(each, CategoryColumn) for each in found) else found


def _fitted(result: Result, model: LinearEstimator, posed: Posed, targets: tuple[FrameColumn, ...]) -> LinearResult:
    schema = model.schema_
    outcome = posed.taken(result)
    known = {each.name: getattr(result, each.name) for each in fields(RunAccount)}
    if outcome is None:
        warn_at_the_call(
            f"{type(model).__name__} has not been fitted: the run was stopped ({result.stop_reason}) before its first "
            "worker could return. Raise train.stop.timeout where a step takes longer, or resume from a checkpoint."
        )
    return LinearResult(
        model=model,
        history={} if outcome is None else outcome.history,
        epoch=[] if outcome is None else outcome.epoch,
        all_reduce_s=np.nan,
        waiting_s=np.nan,
        schema=None if schema is None else replace(schema, targets=targets),
        **known,
    )
