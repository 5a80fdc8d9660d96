"""The tasks of predictions: one block in, one block out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import get_worker

from dask_train.cluster.on_worker.model_processes import ModelProcesses
from dask_train.collections.pieces.form import chosen as chosen_columns
from dask_train.collections.pieces.reading import read
from dask_train.config import PredictLimits
from dask_train.data.columns import Column
from dask_train.prediction.in_process import ObjectModel
from dask_train.prediction.scores import Counted, scored
from dask_train.prediction.values import Call, ModelParts, fitting


def array_block(call: Call, limits: PredictLimits, model: Any, *blocks: Any) -> Any:
    """What a model says of a block of arrays: an array, or a tuple of all outputs.

    Parameters
    ----------
    call, limits
        The same for all blocks.
    model
        As it came to this Dask worker.
    *blocks
        ``(num_rows, *row_shape)`` each; in lists, as Dask gives blocks of axes that are not kept.
    """
    arrays = [np.asarray(_unwrapped(block)) for block in blocks]
    found = answered(call, limits, model, arrays)
    return found[0] if len(call.outputs) == 1 else tuple(found)


def frame_block(
    call: Call, limits: PredictLimits, plan: Mapping[str, Any] | None, names: Any, model: Any, frame: Any
) -> Any:
    """What a model says of a partition of a frame: a Series or a DataFrame with its index.

    Parameters
    ----------
    plan
        How the frame becomes arrays; None where the model takes frames.
    names
        As :func:`series_or_frame` takes them.
    """
    if plan is None:
        found = answered(call, limits, model, [frame])
    else:
        where = _where("the frame")
        found = answered(call, limits, model, [read(where, one, [frame]) for one in plan["reads"]])
    return series_or_frame(found, frame.index, names)


def series_or_frame(arrays: Sequence[np.ndarray], index: Any, names: Any) -> Any:
    """Outputs as columns.

    Parameters
    ----------
    arrays
        ``(num_rows,)`` or ``(num_rows, n)`` each.
    index
        Of the rows.
    names
        The name of a Series, or a list of names of columns.
    """
    import pandas as pd

    columns = [column for array in arrays for column in (array.T if array.ndim > 1 else [array])]
    if not isinstance(names, list):
        return pd.Series(columns[0], index=index, name=names)
    return pd.DataFrame(dict(zip(names, columns, strict=True)), index=index)


def counted_block(
    call: Call, limits: PredictLimits, floatx: str, model: Any, columns: list[np.ndarray]
) -> Counted | None:
    """What a model's metrics count over the rows of a partition; None where it has none.

    Parameters
    ----------
    floatx
        What Keras makes of floats.
    """
    if not len(columns[0]):
        return None
    dtypes = [np.dtype(floatx) if column.dtype.kind == "f" else column.dtype for column in columns]
    taken = [Column(dtype=dtype.str, row_shape=column.shape[1:]) for dtype, column in zip(dtypes, columns, strict=True)]
    counts = answered(replace(call, columns=tuple(taken)), limits, model, columns)
    sample = [column[:1].astype(dtype) for dtype, column in zip(dtypes, columns, strict=True)]
    return Counted(counts=counts, sample=sample)


def scored_block(call: Call, what: str, features: Any, label: Any, model: ObjectModel, piece: Any) -> Any:
    """What an estimator's predictions of a partition add to its score.

    Parameters
    ----------
    piece
        A frame with the features and the label, or a list of inputs, targets and perhaps weights.
    """
    if isinstance(piece, list):
        x, truth, *weights = piece
    else:
        one, several, _ = chosen_columns("x", list(piece.columns), features, label)
        x, truth, weights = piece[one if several is None else several], piece[label].to_numpy(), []
    if not len(x):
        return None
    return scored(what, np.asarray(truth), np.asarray(model.call(call, [x])), weights[0] if weights else None)


def answered(call: Call, limits: PredictLimits, model: Any, values: list[Any]) -> Any:
    """What a model says of rows: in its process on a Dask worker, or here."""
    if isinstance(model, ObjectModel):
        return model.ask(call, values)
    where = _where("a block")
    arrays = fitting(where, values, call.columns)
    if call.verb == "predict" and not len(arrays[0]):
        return [column.empty(0) for column in call.outputs]
    if isinstance(model, ModelParts):
        return ModelProcesses.of(get_worker()).ask(model, limits, call, arrays, where)
    return model.ask(call, arrays)


def chosen(place: int, outputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """One of the outputs that a task has made."""
    return outputs[place]


def _unwrapped(block: Any) -> Any:
    while isinstance(block, list):
        (block,) = block
    return block


def _where(else_: str) -> str:
    """How errors call the block: the key of the Dask task that calls."""
    try:
        return f"block {get_worker().get_current_task()}"
    except ValueError:
        return else_
