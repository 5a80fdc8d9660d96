"""Boosted trees as a search trains them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dask_train.collections.schema.category import CategoryColumn
from dask_train.data.columns import Columns, SourceColumn
from dask_train.fitting.data import FitData
from dask_train.fitting.searched import SearchedKind, TrialRows, TrialSpec
from dask_train.fitting.settings import of_trial
from dask_train.fitting.spec import VALIDATION
from dask_train.fitting.trees.checks import check_plain, check_rows, check_same_features
from dask_train.fitting.trees.result import take_over
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.settings import TreesSettings
from dask_train.fitting.trees.task import EvalSet, TreesTask
from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework

# What each library calls the first set that it scores.
_VALIDATION_OF = {"xgboost": "validation_0", "lightgbm": "valid_0"}


class SearchedTrees(SearchedKind):
    """Estimators of XGBoost or LightGBM, in a search.

    Attributes
    ----------
    library
        ``"xgboost"`` or ``"lightgbm"``.
    settings
        Arguments of ``dt.fit`` that these estimators take.
    of_trial
        Arguments of the estimator's own ``fit`` that are not of rows.
    """

    library: str
    settings: type[TreesSettings]
    of_trial: tuple[str, ...] = ()

    def check_estimator(self, model: Any, settings: Any, qid: Any) -> None:
        """Check an estimator without its rows; ``qid`` is what was passed as queries.

        Raises
        ------
        TypeError, ValueError
            It can't be trained, or not with these settings.
        """

    def check_params(self, model: Any, num_features: int) -> None:
        """Ask the library itself to check an estimator for rows of so many features.

        Raises
        ------
        ValueError
            A parameter is invalid.
        """

    def check_together(self, model: Any, workers: int) -> None:
        """Check that so many workers can train an estimator.

        Raises
        ------
        ValueError
            They can't.
        """

    def framework(self) -> Framework:
        """Return that of the library."""
        return find_framework(self.library)

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Check an estimator as ``fit`` does; the best model is a copy of it that predicts with its best round."""
        if rows.validation is None:
            raise ValueError(
                "A search scores trees on rows that are not trained on. Pass validation_data, or validation_split."
            )
        columns = _matrix_of("data", rows.data)
        check_plain(model, self.library)
        _check_prefix(model)
        self.check_estimator(model, settings, None)
        self.check_params(model, columns.matrix.row_shape[0])
        self.check_together(model, rows.workers)
        check_rows(model, self.library, columns)
        task = TreesTask(
            library=self.library,
            estimator=deepcopy(model),
            columns=columns,
            evals=(self._eval_set(rows.validation, columns),),
            settings={name: getattr(settings, name) for name in self.of_trial},
            **of_trial(),
        )

        def taken(trained: dict[str, Any]) -> Any:
            copied = deepcopy(task.estimator)
            take_over(copied, trained["estimator"])
            return copied

        return TrialSpec(work=TreesRole(task), model=taken)

    def _eval_set(self, validation: FitData, of_data: Columns) -> EvalSet:
        """Return the rows that each round is scored on."""
        columns = _matrix_of("validation_data", validation)
        check_same_features("validation_data", columns, of_data)
        return EvalSet(name=_VALIDATION_OF[self.library], prefix="val_", dataset=VALIDATION, columns=columns)


def _matrix_of(what: str, data: FitData) -> Columns:
    """Return the columns of rows in shared memory as estimators of trees take them, with names and categories.

    Raises
    ------
    ValueError, TypeError
        They are no matrix of features with a column of targets.
    """
    columns, schema = data.columns, data.schema
    is_plain = isinstance(columns.features, int) and isinstance(columns.labels, int)
    if not is_plain or isinstance(columns.weights, dict) or len(columns.matrix.row_shape) != 1 or columns.are_decoded:
        raise ValueError(
            f"{what}: boosted trees take a matrix of features and a column of targets. Pass arrays X and y, or a frame "
            "with label='name', and features as a list of names."
        )
    if schema is None:
        return columns
    if any(isinstance(each, CategoryColumn) for each in schema.targets):
        raise TypeError(
            f"The labels of {what} are categories, of which neither library knows. Pass codes of them, such as "
            "frame[label].cat.codes."
        )
    if not isinstance(schema.features, list):
        return columns
    known: list[Any] = list(schema.columns)
    origins = tuple(SourceColumn(name=each.name, dtype=each.dtype) for each in known)
    return columns.with_origins({columns.features: origins})


def _check_prefix(model: Any) -> None:
    """Refuse what leaves no model of an earlier round within that of the last one, and rankers.

    Raises
    ------
    ValueError
        It is asked for.
    """
    params, kind = model.get_params(), type(model).__name__
    if "Ranker" in "".join(each.__name__ for each in type(model).__mro__):
        raise ValueError(
            f"build returned a {kind}, which needs the number of each row's query, and dt.search takes no qid. Call "
            "dt.fit for each of its parameters."
        )
    asked = {name: params.get(name) for name in ("booster", "boosting_type", "boosting", "boost")}
    if found := [name for name, value in asked.items() if value == "dart"]:
        raise ValueError(
            f"{found[0]}='dart': later rounds change the weights of earlier trees, so a trial's best round has no "
            "model in the end. Choose another booster; or pass scoring=, with which whole fits are compared."
        )
    if any(getattr(each, "save_best", False) for each in params.get("callbacks") or ()):
        raise ValueError(
            "EarlyStopping(save_best=True) removes rounds after the best one, and a search chooses the best round by "
            "metric=. Leave save_best out."
        )
