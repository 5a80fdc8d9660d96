"""What an estimator or a function makes of rows, before it gets any: by its word, or of two sample rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dask_train.compat.dask import sample_of
from dask_train.data.columns import Column, Columns
from dask_train.data.structure import Places, leaves
from dask_train.inputs.data import InputData
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.scores import ACCURACY, R2
from dask_train.predicting.server.values import Call, plain
from dask_train.spelling import by_caller, passed


def own_score(model: Any) -> str | None:
    """Return what the ``score`` of a classifier or regressor of scikit-learn's kind is; None of other models."""
    if any(base.__module__.startswith("sklearn.") for base in type(model).__mro__):
        from sklearn.base import is_classifier, is_regressor

        return ACCURACY if is_classifier(model) else R2 if is_regressor(model) else None
    return None


def promised(model: Any, method: str | None, columns: Sequence[Any]) -> np.ndarray | None:
    """Return what a classifier or regressor tells that it makes of the columns it was fitted with; None if it can't.

    An encoder, for instance, refuses the text of sample rows, which it has not learnt.
    """
    names = list(getattr(model, "feature_names_in_", ()))
    if not names or list(columns) != names:
        return None
    kind, classes = own_score(model), getattr(model, "classes_", None)
    if kind == ACCURACY and isinstance(classes, np.ndarray) and classes.ndim == 1:
        rows = {"predict": np.empty(0, classes.dtype), "predict_proba": np.empty((0, len(classes)))}
        return rows.get(str(method))
    return np.empty(0) if kind == R2 and method == "predict" else None


def outputs_of(
    value: ObjectModel, meta: Any, promised: Callable[[Sequence[Any]], Any], inputs: InputData
) -> tuple[Places, tuple[Column, ...]]:
    """Return the structure and columns of what a model makes of two sample rows, unless they are passed.

    Parameters
    ----------
    value
        An estimator or a function.
    meta
        Arrays like those it makes; None if it is to be tried.
    promised
        Returns what it makes of rows with the columns that are passed, where it can't be tried; None if it is unknown.
    inputs
        The rows.

    Raises
    ------
    ValueError
        It does not take sample rows, or makes of them what is no array with a row of each.
    """
    sample_outputs = meta
    if meta is None:
        sample = Call(verb="predict", columns=inputs.columns, batch_size=2)
        rows = [np.zeros((2, *column.row_shape), column.dtype) for column in inputs.columns]
        sample_inputs = rows if inputs.frame is None else [_sample(sample_of(inputs.frame))]
        try:
            sample_outputs = value.call(sample, sample_inputs)
        except Exception as error:
            sample_outputs = meta = promised(getattr(inputs.frame, "columns", ()))
            if meta is None:
                raise ValueError(
                    f"{value.name} does not take sample rows ({type(error).__name__}: {error}), so what it makes is "
                    "not known. They are like those of the data: pass the columns that it was fitted with"
                    + by_caller(
                        ". Does it take the data itself? Pass meta=: an array, or several, of its dtype and row shape, "
                        "such as np.empty((0, 10), 'f4').",
                        f", {passed('features')} NAME,NAME.",
                    )
                ) from error
        else:
            sample_outputs = _as_arrays(sample_outputs, len(sample_inputs[0]), value.name)
    columns, arrays = Columns.of(sample_outputs)
    outputs = []
    for array in arrays:
        output = plain(array)
        if hasattr(array, "toarray"):
            raise ValueError(
                f"{value.name} makes a sparse matrix, which has no place in an array. Make it dense, with "
                "sparse_output=False, or by a function: lambda x: model.transform(x).toarray()."
            )
        if output.ndim == 0:
            raise ValueError(
                f"{value.name} makes {output!r}; it has to make one row of each, or meta= has to be arrays."
            )
        outputs.append(
            Column(dtype=_planned(output.dtype, value, sampled=meta is None), row_shape=tuple(output.shape[1:]))
        )
    return columns.features, tuple(outputs)


def _sample(rows: Any) -> Any:
    """Dask's two sample rows without its missing values, which few functions expect: twice the first."""
    sample = rows.iloc[[0, 0]]
    sample.index = rows.index
    return sample


def _planned(dtype: np.dtype, value: ObjectModel, *, sampled: bool) -> str:
    """Return the dtype of all blocks: objects in place of text whose length sample rows don't tell."""
    tells = dtype == getattr(value.classes, "dtype", None)  # a classifier's is that of its labels
    return "|O" if dtype.kind == "T" or (dtype.kind in "US" and sampled and not tells) else dtype.str


def _as_arrays(outputs: Any, num_rows: int, name: str) -> Any:
    for array in leaves(outputs):
        shape = np.shape(array)
        if not shape or shape[0] != num_rows:
            raise ValueError(
                f"{name} makes an output of shape {shape} of {num_rows} rows; it has to make a row of each."
            )
    return outputs
