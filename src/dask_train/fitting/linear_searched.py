"""Linear models as a search trains them: a fit is one epoch, which is scored in the end."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from dask_train.collections.schema.category import CategoryColumn
from dask_train.fitting.data import FitData
from dask_train.fitting.searched import SearchedKind, TrialRows, TrialSpec
from dask_train.fitting.settings import FitSettings, of_trial
from dask_train.fitting.spec import VALIDATION
from dask_train.linear_model.rank_role import FOUND, Linear, LinearRole
from dask_train.linear_model.validating import ScoredRows
from dask_train.trainers.common.task import LoopTask


class SearchedLinearModels(SearchedKind):
    """Estimators of :mod:`dask_train.linear_model`, in a search."""

    settings = FitSettings
    of_trial = ()

    def framework(self) -> Linear:
        """Return that of ``fit`` of linear models."""
        return Linear()

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:  # noqa: ARG002 - none is of a trial
        """Check a model as ``fit`` does; the best model is a copy of it."""
        if rows.validation is None:
            raise ValueError(
                "A search scores linear models on rows that are not trained on: their own loss has the penalty in it. "
                "Pass validation_data, or validation_split."
            )
        places, of_validation = _places("data", rows.data), _places("validation_data", rows.validation)
        features = rows.data.columns.matrix
        if (given := rows.validation.columns.matrix.row_shape) != features.row_shape:
            raise ValueError(f"validation_data has {given[0]} features, and the data {features.row_shape[0]}.")
        targets, given = rows.data.columns[places[1]].row_shape, rows.validation.columns[of_validation[1]].row_shape
        if targets != given:
            raise ValueError(f"A row of validation_data has targets of shape {given}, and one of the data {targets}.")
        copied, schema = deepcopy(model), rows.data.schema
        of_frame = schema if schema is not None and isinstance(schema.features, list) else None
        names = None if of_frame is None else [each.name for each in of_frame.columns]
        posed = copied._posed_for(
            features.row_shape[0],
            names,
            np.empty((0, *targets)),
            rows.labels,
        )

        def taken(trained: dict[str, Any]) -> Any:
            posed.take(trained[FOUND])
            return copied

        validation = ScoredRows(dataset=VALIDATION, places=of_validation)
        task = LoopTask(**of_trial())
        role = LinearRole(problem=posed.problem, task=task, places=places, validation=validation)
        return TrialSpec(work=role, model=taken)


def _places(what: str, data: FitData) -> tuple[int, ...]:
    """Return the numbers of the columns of features, targets and perhaps weights.

    Raises
    ------
    ValueError
        They are no matrix with targets, or there are categories.
    """
    columns, schema = data.columns, data.schema
    known = () if schema is None else (*schema.columns, *schema.targets)
    if odd := [each.name for each in known if isinstance(each, CategoryColumn)]:
        raise ValueError(
            f"{what}: column {odd[0]!r} holds categories, which trials of linear models do not take. Make numbers of "
            "it, or text of labels; or pass scoring=, with which the model makes indicators of them."
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
