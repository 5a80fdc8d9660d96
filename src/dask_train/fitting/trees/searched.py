"""What a search refuses of boosted trees, and their rows in shared memory as estimators take them."""

from __future__ import annotations

from typing import Any

from dask_train.collections.schema.category import CategoryColumn
from dask_train.data.columns import Columns, SourceColumn
from dask_train.fitting.trees.checks import check_one_number
from dask_train.inputs.data import InputData
from dask_train.shared_data.segments import segments_in


def matrix_of(what: str, data: InputData) -> Columns:
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
    check_one_number(what, columns)
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


def matrices_of(data: InputData, validation: InputData) -> tuple[Columns, Columns]:
    """Return :func:`matrix_of` of rows to train on and of rows to validate on.

    Published numbers go with arrays, without the names of their columns.
    """
    columns, of_validation = matrix_of("data", data), matrix_of("validation_data", validation)
    if of_validation.matrix.names is None:
        columns = _without_names(data, columns)
    if columns.matrix.names is None:
        of_validation = _without_names(validation, of_validation)
    return columns, of_validation


def _without_names(data: InputData, columns: Columns) -> Columns:
    if columns.matrix.categories is not None or segments_in(data.value) is None:
        return columns
    return columns.with_origins({columns.features: ()})


def check_prefix(model: Any) -> None:
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
    boosters = {name: params.get(name) for name in ("booster", "boosting_type", "boosting", "boost")}
    if dart_names := [name for name, value in boosters.items() if value == "dart"]:
        raise ValueError(
            f"{dart_names[0]}='dart': later rounds change the weights of earlier trees, so a trial's best round has no "
            "model in the end. Choose another booster; or pass scoring=, with which whole fits are compared."
        )
    if any(getattr(each, "save_best", False) for each in params.get("callbacks") or ()):
        raise ValueError(
            "EarlyStopping(save_best=True) removes rounds after the best one, and a search chooses the best round by "
            "metric=. Leave save_best out."
        )
