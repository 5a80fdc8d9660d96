"""Boosted trees as ``fit`` takes them: what estimators of both libraries share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask_train.collections.delayed import are_parts
from dask_train.data.columns import Column, Columns
from dask_train.driver.settings import RunInputs
from dask_train.fitting.logged import params_of_estimator
from dask_train.fitting.model_kind import FitCall, FitRows, FitWork, ModelKind, TrialRows, TrialSpec
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.settings import run_fields, trial_fields
from dask_train.fitting.spec import VALIDATION
from dask_train.fitting.trees.categories import check_going_on
from dask_train.fitting.trees.checks import (
    check_best,
    check_enough,
    check_plain,
    check_resumes,
    check_rows,
    check_same_features,
    check_same_queries,
    check_stops_early,
)
from dask_train.fitting.trees.result import grown, take_over
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.rows import num_parts, tree_data
from dask_train.fitting.trees.searched import check_prefix, matrices_of
from dask_train.fitting.trees.settings import ROUNDS, TreesSettings
from dask_train.fitting.trees.task import EvalSet, TreesTask
from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework
from dask_train.inputs.data import InputData, check_some_rows

# What each library calls the first set that it scores.
_VALIDATION_OF = {"xgboost": "validation_0", "lightgbm": "valid_0"}
# What LightGBM calls the rows to train on where they are scored, too: as a data set of their own.
TRAINING = "training"
# Rows that are scored: features and targets, and what else goes with them by name.
Evals = Sequence[tuple[Any, Any, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenRows:
    """Rows as the user passed them.

    Attributes
    ----------
    rows
        Features, targets, and what else goes with rows by name.
    evals, names
        Rows that are scored, and what they are called.
    """

    rows: tuple[Any, Any, Mapping[str, Any]]
    evals: Evals
    names: Sequence[str]


class Trees(ModelKind):
    """Estimators of boosted trees; each library has its own class.

    Attributes
    ----------
    name
        That of the library, and of its adapter.
    trial_settings
        Arguments of the estimator's own ``fit`` that are not of rows.
    """

    trial_settings: tuple[str, ...] = ()
    not_taken = ("gpus",)
    unit = "round"
    takes_missing = True

    @abstractmethod
    def given(self, call: FitCall) -> GivenRows:
        """Return the rows as the library's own arguments name them.

        Raises
        ------
        ValueError
            They are named wrongly.
        """

    @abstractmethod
    def first(self, call: FitCall) -> Any:
        """Return the booster, or fitted estimator, to continue; None for none."""

    def options(self, settings: Any) -> dict[str, Any]:
        """Return arguments for the estimator's own ``fit`` in each role process."""
        return {name: getattr(settings, name) for name in self.trial_settings}

    def check_estimator(self, model: Any, settings: Any, qid: Any) -> None:
        """Check an estimator without its rows; ``qid`` is what was passed as queries.

        Raises
        ------
        TypeError, ValueError
            It can't be trained, or not with these settings.
        """

    @abstractmethod
    def not_resumed(self, model: Any) -> str:
        """Return which parameters let a fit that resumes grow other trees than one that was never stopped.

        Returns
        -------
        str
            Such as ``"subsample=0.5"``; empty if there are none.
        """

    def check_params(self, model: Any, features: Column) -> None:
        """Ask the library itself to check an estimator for rows of such features.

        Raises
        ------
        ValueError
            A parameter is invalid.
        """

    def check(self, call: FitCall) -> None:
        """Check the estimator and its parameters."""
        model, settings = call.model, call.settings
        self.check_estimator(model, settings, settings.qid)
        check_plain(model, self.name)
        check_stops_early(model.get_params(), validates=settings.validates)
        if call.in_place:
            check_resumes(self.name, self.not_resumed(model))

    def scores(self, call: FitCall) -> set[str] | None:
        """Return the number of the round alone, where nothing is scored."""
        return None if call.settings.validates else {"round"}

    def check_best(self, call: FitCall) -> None:
        """Check that a score tells the best checkpoint."""
        check_best(call.run.checkpoint, validates=call.settings.validates)

    def rows(self, call: FitCall) -> FitRows:
        """Return the rows, and the sets that are scored; arrays in memory are cut for the workers."""
        return self._rows(call, 1 if call.workers == 0 else call.workers)

    def prepared(self, call: FitCall, rows: FitRows) -> None:
        """Check that the estimator takes the rows, and let its library check the parameters."""
        model, columns, first = call.model, rows.data.columns, self.first(call)
        check_rows(model, self.name, columns)
        self.check_params(model, columns.matrix)
        check_going_on(self.name, first, _schema_of(first), columns)
        if call.run.window is not None:
            check_enough(num_parts(rows.inputs.data["worker"]), call.workers or 1)

    def shared(self, call: FitCall, rows: FitRows, workers: int) -> tuple[FitRows, int]:
        """Return rows cut for so many workers, of which there are no more than partitions with rows."""
        rows = self._rows(call, workers)
        most = num_parts(rows.inputs.data["worker"])
        return rows, workers if most is None else min(workers, most)

    def work(self, call: FitCall, rows: FitRows, prepared: None) -> FitWork:  # noqa: ARG002 - there is none
        """Return what the workers do."""
        model, settings, options = call.model, call.settings, self.options(call.settings)
        task = TreesTask(
            library=self.name,
            estimator=deepcopy(model) if settings.in_process else model,
            columns=rows.data.columns,
            evals=tuple(rows.validation),
            start=self.first(call),
            settings=options,
            streamed=call.run.window is not None,
            in_process=settings.in_process,
            **run_fields(call.run),
        )
        callbacks = options.get("callbacks") or ()
        return FitWork(
            functions=TreesRole(task),
            params=params_of_estimator(model),
            display=partial(settings.display, rounds=model.n_estimators or ROUNDS),
            finish=partial(grown, model=model, callbacks=callbacks, evals=rows.validation, schema=rows.data.schema),
        )

    def _rows(self, call: FitCall, workers: int | None) -> FitRows:
        passed, settings = self.given(call), call.settings
        make = partial(tree_data, features=settings.features, label=settings.label, workers=workers)
        data = make("data", *passed.rows, known=_schema_of(self.first(call)))
        check_some_rows("The data", source := data.source("data"))
        is_tuple = settings.validation_data is not None
        argument_names = [
            "validation_data" if is_tuple else f"eval_set[{number}]" for number in range(len(passed.evals))
        ]
        sets, sources = _eval_sets(passed, argument_names, data, make)
        return FitRows(data=data, validation=sets, inputs=RunInputs(data={"worker": source}, datasets=sources))

    def framework(self, *, in_place: bool = False) -> Framework:
        """Return that of the library; with ``in_place`` all workers start again, from a state in memory."""
        framework = find_framework(self.name)
        framework.keeps_state = in_place
        return framework

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Check an estimator as ``fit`` does; the best model is a copy of it that predicts with its best round."""
        if rows.validation is None:
            raise ValueError(
                "A search scores trees on rows that are not trained on. Pass validation_data, or validation_split."
            )
        columns, of_validation = matrices_of(rows.data, rows.validation)
        check_plain(model, self.name)
        check_prefix(model)
        self.check_estimator(model, settings, None)
        self.check_params(model, columns.matrix)
        self.check_together(model, settings, rows.workers)
        check_rows(model, self.name, columns)
        task = TreesTask(
            library=self.name,
            estimator=deepcopy(model),
            columns=columns,
            evals=(self._eval_set(of_validation, columns),),
            settings=self.options(settings),
            **trial_fields(),
        )

        def taken(trained: dict[str, Any]) -> Any:
            copied = deepcopy(task.estimator)
            take_over(copied, trained)
            return copied

        return TrialSpec(work=TreesRole(task), model=taken)

    def _eval_set(self, columns: Columns, of_data: Columns) -> EvalSet:
        """Return the rows that each round is scored on."""
        check_same_features("validation_data", columns, of_data)
        return EvalSet(name=_VALIDATION_OF[self.name], prefix="val_", dataset=VALIDATION, columns=columns)


def _schema_of(first: Any) -> Any:
    """Return what a model that is to be continued knows of the columns of frames."""
    return None if first is None else learnt_for(first)


def _eval_sets(
    passed: GivenRows, argument_names: Sequence[str], data: InputData, make: Callable[..., InputData]
) -> tuple[list[EvalSet], dict[str, Any]]:
    """Return the rows that are scored, called ``argument_names`` in errors, and those of them not trained on."""
    is_own = [is_same(each, passed.rows) for each in passed.evals]
    sets: list[EvalSet] = []
    sources: dict[str, Any] = {}
    for number, (x, y, others) in enumerate(passed.evals):
        name, what = passed.names[number], argument_names[number]
        if is_own[number] and name != TRAINING:
            sets.append(EvalSet(name=name, prefix="", dataset="", columns=data.columns))
            continue
        eval_data = make(what, x, y, others, known=data.schema)
        check_same_features(what, eval_data.columns, data.columns)
        check_same_queries(what, eval_data.columns, data.columns)
        prefix = "" if is_own[number] else "val_" if is_own.count(False) == 1 else f"{name}_"
        sets.append(EvalSet(name=name, prefix=prefix, dataset=name, columns=eval_data.columns))
        sources[name] = eval_data.source(what)
    return sets, sources


def is_same(some: tuple[Any, Any, Mapping[str, Any]], rows: tuple[Any, Any, Mapping[str, Any]]) -> bool:
    """Return whether these are the very objects that the rows to train on were passed as."""
    names = {**some[2], **rows[2]}
    return some[0] is rows[0] and some[1] is rows[1] and all(some[2].get(each) is rows[2].get(each) for each in names)


def evals_of(
    settings: TreesSettings, weights: Any, margins: Any, *, by_name: Mapping[str, Any]
) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Return what is scored, however it was passed; weights and margins are those of ``eval_set``."""
    named: dict[str, Any] = {}
    validation_data, eval_set = settings.validation_data, settings.eval_set
    if validation_data is not None:
        if eval_set is not None:
            raise ValueError("validation_data and eval_set are two ways to say the same. Pass one of them.")
        if not isinstance(validation_data, tuple | list) or are_parts(validation_data):  # a frame like the data
            are_named = settings.label is not None  # of pandas, names need not be text
            named = {
                name: value
                for name, value in by_name.items()
                if isinstance(value, str) or (are_named and value is not None)
            }
            validation_data = (validation_data, None)
        elif not 2 <= len(validation_data) <= 3:
            raise ValueError(f"validation_data has {len(validation_data)} elements; it is (X, y) or (X, y, weights).")
        x, y, *weight = validation_data
        if weight and weights is not None:
            raise ValueError("validation_data has weights, and a list of weights was passed, too. Pass one of them.")
        eval_set, weights = [(x, y)], weight or weights
    sets = list(eval_set or ())
    lists = {"sample_weight": weights, "margin": margins, "qid": settings.eval_qid}
    for what, values in lists.items():
        if values is not None and len(values) != len(sets):
            raise ValueError(f"There are {len(sets)} sets to score, and {len(values)} of {what}. Pass one for each.")
    return [
        (x, y, {**named, **{what: values[number] for what, values in lists.items() if values is not None}})
        for number, (x, y) in enumerate(sets)
    ]
