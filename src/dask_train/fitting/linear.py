"""Linear models: a fit is a run whose steps are those of the solver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.collections.partition.form import is_frame, is_name, resolved
from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in, schema_of
from dask_train.driver.result import Result, RunAccount
from dask_train.fitting.logged import params_of_estimator
from dask_train.fitting.model_kind import FitCall, FitRows, FitWork, ModelKind, TrialRows, TrialSpec
from dask_train.fitting.result import FitResult, result_of, warn_not_fitted
from dask_train.fitting.settings import FitSettings, run_fields, trial_fields
from dask_train.fitting.spec import VALIDATION
from dask_train.frameworks.base import Framework
from dask_train.inputs.data import InputData
from dask_train.inputs.making import check_apart, input_data
from dask_train.inputs.published import in_shared_memory
from dask_train.linear_model.categories import indicators_of
from dask_train.linear_model.estimating import LinearEstimator
from dask_train.linear_model.posed import Posed
from dask_train.linear_model.rank_role import FOUND, Linear, LinearInPlace, LinearRole
from dask_train.linear_model.validating import ScoredRows
from dask_train.report.account import MetricCurves
from dask_train.run.stop_rule import StopRule
from dask_train.shared_data.segments import is_data_set
from dask_train.trainers.common.task import LoopTask
from dask_train.trainers.settings import ModelSettings

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

    def _save(self, folder: Path) -> Iterator[Path]:
        """Write the ledger, the estimator as a pickle, and the page."""
        yield from RunAccount._save(self, folder)
        path = folder / "model.pickle"
        path.write_bytes(cloudpickle.dumps(self.model))
        yield path
        if self.epoch:
            yield from self._page(folder)

    def _metrics(self) -> MetricCurves:
        return MetricCurves(self.history, self.epoch, "step")

    def _values(self) -> list[tuple[str, str]]:
        model, (_, steps), *others = super()._values()
        return [model, ("steps", steps), *others]


class LinearModels(ModelKind):
    """Estimators of :mod:`dask_train.linear_model`, which are fitted in place.

    ``x`` and ``y`` are as of the estimator's own ``fit``; or ``x`` is a frame, with ``label`` and perhaps ``features``,
    or a data set of ``dt.get_dataset`` that was published as ``(X, y)``. ``workers`` is by default that of the
    estimator. ``stop`` looks at ``loss``, what is minimised, which is reported after each step. A checkpoint is kept as
    ``checkpoint`` says, by default one per minute, and where the fit ends or is stopped. What resumes takes the very
    steps that are left, with as many workers that have the same rows to the last bit. ``max_iter`` and ``workers`` may
    be others, but ``admm`` needs the number of workers that it began with.
    """

    name = "linear"
    settings = FitSettings
    not_taken = ("streaming", "gpus", "validation_data")
    trial_settings = ()

    def workers(self, model: LinearEstimator, settings: Any) -> int | None:
        """Return how many were asked for, by the estimator if not by the call."""
        workers = super().workers(model, settings)
        own: int | None = model.workers
        return own if workers is None else workers

    def traits(self, call: FitCall) -> list[str]:
        """Return whether the model has no steps."""
        return [] if hasattr(call.model, "solver") else ["one pass"]

    def scores(self, call: FitCall) -> set[str]:  # noqa: ARG002 - all have the same
        """Return the only one, what is minimised."""
        return {"loss"}

    def rows(self, call: FitCall) -> FitRows:
        """Return the problem that the estimator poses of its rows."""
        client, workers = call.run.client, call.workers
        with nullcontext() if client is None else client.as_current():
            columns, schema = _rows(call.x, call.y, call.settings)
            posed: Posed = call.model._posed(*columns, workers)
            learnt: FrameSchema | None = posed.learnt["schema_"]
            if learnt is not None:
                schema = replace(learnt, targets=_targets(call.x, call.settings.label))
        posed = replace(posed, schema=schema)
        return FitRows(data=posed, inputs=posed.inputs(workers))

    def prepared(self, call: FitCall, rows: FitRows) -> dict[str, Any]:
        """Check what ``stop`` looks at, and return what a checkpoint has to have been made with."""
        _check_one_loss([*call.run.epoch_rules, call.run.stop], rows.data.columns[1])
        return _configuration(call.model, rows.data) if call.run.checkpoint else {}

    def one_per_dask_worker(self, call: FitCall) -> bool:  # noqa: ARG002 - as of all
        """Return that it is, as of the estimator's own ``fit``."""
        return True

    def work(self, call: FitCall, rows: FitRows, prepared: dict[str, Any]) -> FitWork:
        """Return what solves the problem."""
        model, posed = call.model, rows.data
        return FitWork(
            functions=posed.role(LoopTask(**run_fields(call.run), configuration=prepared), in_place=call.in_place),
            params=params_of_estimator(model),
            finish=partial(_fitted, model=model, posed=posed),
        )

    def framework(self, *, in_place: bool = False) -> Framework:
        """Return that of ``fit`` of linear models."""
        return LinearInPlace() if in_place else Linear()

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:  # noqa: ARG002 - none is of a trial
        """Check a model as ``fit`` does; the best model is a copy of it."""
        if rows.validation is None:
            raise ValueError(
                "A search scores linear models on rows that are not trained on: their own loss has the penalty in it. "
                "Pass validation_data, or validation_split."
            )
        copied, schema = deepcopy(model), _schema_of_matrix(rows.data)
        places = _places("data", rows.data, categories=schema is not None)
        of_validation = _places("validation_data", rows.validation, categories=schema is not None)
        features = rows.data.columns.matrix
        if (row_shape := rows.validation.columns.matrix.row_shape) != features.row_shape:
            raise ValueError(f"validation_data has {row_shape[0]} features, and the data {features.row_shape[0]}.")
        targets = rows.data.columns[places[1]].row_shape
        validation_targets = rows.validation.columns[of_validation[1]].row_shape
        if targets != validation_targets:
            raise ValueError(
                f"A row of validation_data has targets of shape {validation_targets}, and one of the data {targets}."
            )
        indicators = None if schema is None else indicators_of(schema)
        (num_features,) = (indicators or features).row_shape
        posed = copied._posed_for(num_features, schema, np.empty((0, *targets)), rows.labels)

        def taken(trained: dict[str, Any]) -> Any:
            posed.take(trained[FOUND])
            return copied

        validation = ScoredRows(dataset=VALIDATION, places=of_validation, indicators=indicators)
        task = LoopTask(**trial_fields())
        role = LinearRole(problem=posed.problem, task=task, places=places, indicators=indicators, validation=validation)
        return TrialSpec(work=role, model=taken)


def _check_one_loss(rules: Sequence[StopRule | None], y: Any) -> None:
    """Check that no rule looks at the losses of several targets, which are fitted one after the other.

    Raises
    ------
    ValueError
        One does: once met by one target, it would leave out those that follow, and patience would compare them.
    """
    if y.ndim == 2 and y.shape[1] > 1 and any("loss" in rule.names for rule in rules if rule is not None):
        raise ValueError(
            f"stop looks at loss, and y has {y.shape[1]} columns: they are fitted one after the other, each with its "
            "own loss, and the first one that met the rule would end the fit of all. Pass one column, y[:, 0], or a "
            "rule of steps or seconds."
        )


def _rows(x: Any, y: Any, settings: ModelSettings) -> tuple[tuple[Any, Any, Any], FrameSchema | None]:
    """Return features, targets and weights; cut from a frame where columns are named, or of a published data set.

    And the schema of a data set that was made of a frame; None of others, of which the estimator learns it.

    Raises
    ------
    TypeError, ValueError
        They are named otherwise than as columns of a frame or data set, or there are no targets.
    """
    features, label, weight = settings.features, settings.label, settings.sample_weight
    if is_data_set(x):
        columns: dict[str, Any] = {"features": features, "label": label}
        data = input_data("x", x, y, weight, **columns, like=Conformer(None, coded=False))
        _places("x", data)
        return in_shared_memory(data), data.schema
    # In pandas' frames of arrays, names are whole numbers.
    weight_name = weight if isinstance(weight, str) or (is_frame(x) and is_name(weight)) else None
    named = [each for each in (features, label, weight_name) if each is not None]
    if named and not hasattr(x, "iloc") and not hasattr(x, "map_partitions"):
        raise ValueError(f"features, label or sample_weight name columns, and x is a {type(x).__name__}, not a frame.")
    if isinstance(features, Mapping) or isinstance(label, Mapping):
        raise ValueError("features and label of a linear model are names of columns, not dicts.")
    if y is None and label is None:
        raise ValueError("A linear model needs targets. Pass y, or a frame with label='column'.")
    if y is not None and label is not None:
        raise ValueError("Targets are given twice, as y and as label. Pass one of them.")
    if not named:
        return (x, y, weight), None
    others = [each for each in (label, weight_name) if each is not None]
    check_apart("x", list(names_in(label)), features)
    (chosen, _), *picks = resolved("x", list(x.columns), [features, *others])
    targets = y if label is None else x[label if is_name(label) else picks[0][0]]
    return (x[chosen], targets, weight if weight_name is None else x[weight_name]), None


def _configuration(model: LinearEstimator, posed: Posed) -> dict[str, Any]:
    """Return what a checkpoint has to have been made with, besides the rows: the problem, as plain values."""
    fixed_params = {name: value for name, value in model.get_params().items() if name not in _FREE}
    params = {name: value if isinstance(value, str) else repr(value) for name, value in fixed_params.items()}
    configuration = {"model": type(model).__name__, "num_features": int(posed.columns[0].shape[1]), **params}
    names = posed.learnt.get("feature_names_in_")
    if names is not None:
        configuration["features"] = [str(name) for name in names]
    classes = getattr(posed.problem, "classes", None)
    if classes is not None:
        configuration["classes"] = [repr(each) for each in np.asarray(classes).tolist()]
    return configuration


def _targets(x: Any, label: Any) -> tuple[FrameColumn, ...]:
    """Return the columns of a frame that are targets as they are, by which an evaluation finds them."""
    if label is None:
        return ()
    columns = schema_of("x", x, list(names_in(label)), ()).columns
    return () if any(isinstance(each, CategoryColumn) for each in columns) else columns


def _fitted(result: Result, model: LinearEstimator, posed: Posed) -> LinearResult:
    outcome = posed.taken(result)
    if outcome is None:
        warn_not_fitted(model, result, "step")
    return result_of(
        LinearResult,
        result,
        outcome,
        model=model,
        all_reduce_s=np.nan,
        waiting_s=np.nan,
        schema=posed.schema,
    )


def _schema_of_matrix(data: InputData) -> FrameSchema | None:
    """Return what each column of the features is, if they are a matrix of columns of a frame."""
    schema = data.schema
    return replace(schema, targets=()) if schema is not None and isinstance(schema.features, list) else None


def _places(what: str, data: InputData, *, categories: bool = False) -> tuple[int, ...]:
    """Return the numbers of the columns of features, targets and perhaps weights.

    Parameters
    ----------
    what
        How errors call the data.
    data
        The rows.
    categories
        Whether features may be codes of categories.

    Raises
    ------
    ValueError
        They are no matrix with targets, or there are categories.
    """
    columns, schema = data.columns, data.schema
    known = () if schema is None else (*(() if categories else schema.columns), *schema.targets)
    if odd := [each.name for each in known if isinstance(each, CategoryColumn)]:
        raise ValueError(
            f"{what}: column {odd[0]!r} holds categories, whose codes are no numbers for a linear model. Make text of "
            "labels, frame[name].astype(str); and of features pass the frame itself, not published codes."
        )
    places = [place for place in (columns.features, columns.labels, columns.weights) if place is not None]
    numbers = [place for place in places if isinstance(place, int)]
    is_plain = columns.labels is not None and len(numbers) == len(places) and not columns.are_decoded
    if not is_plain or len(columns.matrix.row_shape) != 1 or np.dtype(columns.matrix.dtype).kind not in "biuf":
        raise ValueError(
            f"{what}: a linear model takes a matrix of numbers and a column of targets. Pass arrays X and y, or a "
            "frame with label='name' and features as a list of names."
        )
    if len(numbers) == 3 and (shape := columns[numbers[2]].row_shape):
        raise ValueError(f"{what}: weights are one per row, and a row of these has the shape {shape}.")
    return tuple(numbers)


LINEAR_MODELS = LinearModels()
