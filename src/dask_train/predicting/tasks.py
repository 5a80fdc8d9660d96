"""The tasks of predictions: one block in, one block out."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from distributed import get_worker

from dask_train.collections.blocks import check_plain
from dask_train.collections.missing import as_array, check_none_missing
from dask_train.collections.partition.form import chosen as chosen_columns
from dask_train.collections.partition.part import check_same_index
from dask_train.collections.partition.reading import read
from dask_train.config import PredictLimits
from dask_train.data.columns import Column
from dask_train.predicting.model_pool import ModelProcesses
from dask_train.predicting.server.batches import BatchCounts, counted, joined
from dask_train.predicting.server.in_process import LocalModel, ObjectModel
from dask_train.predicting.server.scores import Predictions, scored
from dask_train.predicting.server.values import Call, ModelParts, fitting
from dask_train.settings.process import Settings
from dask_train.spelling import named


def array_block(call: Call, limits: PredictLimits, token: str, model: Any, place: tuple[int, ...], *blocks: Any) -> Any:
    """Return what a model says of a block of arrays: an array, or a tuple of all outputs.

    Parameters
    ----------
    call, limits
        The same for all blocks.
    token
        Of the whole prediction.
    model
        As it came to this Dask worker.
    place
        The number of the block.
    *blocks
        ``(num_rows, *row_shape)`` each; in lists, as Dask gives blocks of axes that are not kept.
    """
    arrays = [_plain(_unwrapped(block)) for block in blocks]
    outputs = answered(call, limits, model, arrays, drawn_for=(token, *place))
    return outputs[0] if len(call.outputs) == 1 else tuple(outputs)


def frame_block(
    call: Call, limits: PredictLimits, token: str, reads: Sequence[Any] | None, names: Any, frame: Any, model: Any
) -> Any:
    """Return what a model says of a partition of a frame: a Series or a DataFrame with its index.

    Parameters
    ----------
    token
        Of the whole prediction.
    reads
        How the frame becomes arrays, as :attr:`~dask_train.inputs.data.InputData.reads` has it.
    names
        As :func:`series_or_frame` takes them.
    """
    where = _where("the frame")
    values = [frame] if reads is None else [_array(where, one, frame) for one in reads]
    outputs = answered(call, limits, model, values, drawn_for=(token, _place()))
    return series_or_frame(outputs, frame.index, names)


def _array(where: str, one: Any, frame: Any) -> np.ndarray:
    if one["columns"][0]["how"] != "text":
        return read(where, one, [frame])
    names = [column["name"] for column in one["columns"]]  # which the process of the model checks to be text
    some = frame if frame.ndim == 1 else frame[names if one["matrix"] else names[0]]
    return np.asarray(some.to_numpy(object))


def series_or_frame(arrays: Sequence[np.ndarray], index: Any, names: Any) -> Any:
    """Return outputs as columns.

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

    columns = [
        pd.Series(column, index=index, dtype=array.dtype if array.dtype.hasobject else None)  # else what pandas infers
        for array in arrays
        for column in (array.T if array.ndim > 1 else [array])
    ]
    if not isinstance(names, list):
        return columns[0].rename(names)
    return pd.concat(columns, axis=1, keys=names)


def num_rows(columns: list[np.ndarray]) -> int:
    """Return rows of a partition."""
    return len(columns[0])


def counted_block(
    call: Call, limits: PredictLimits, floatx: str, is_last: bool, model: Any, columns: list[np.ndarray], offset: int
) -> BatchCounts | None:
    """Return what a model's metrics count over a partition; None if it has no rows.

    Parameters
    ----------
    floatx
        What Keras makes of floats.
    is_last
        Whether no rows may follow.
    offset
        The number of rows before it.
    """
    arrays = [column.astype(floatx, copy=False) if column.dtype.kind == "f" else column for column in columns]
    count = partial(_asked, call, limits, model)
    return counted(arrays, offset, call.batch_size, count, is_last=is_last)


def joined_blocks(call: Call, limits: PredictLimits, model: Any, parts: list[BatchCounts | None]) -> BatchCounts | None:
    """Return what a model's metrics count over partitions that follow each other."""
    return joined(parts, partial(_asked, call, limits, model))


def logs(call: Call, limits: PredictLimits, model: Any, total: BatchCounts | None) -> dict[str, Any] | None:
    """Return what a model's metrics say of all rows; None if there are none."""
    if total is None or total.tail is None:
        return None
    return _asked(replace(call, verb="logs", before=total.counts), limits, model, total.tail)


def _asked(call: Call, limits: PredictLimits, model: Any, columns: list[np.ndarray]) -> Any:
    rows = [Column(dtype=column.dtype.str, row_shape=column.shape[1:]) for column in columns]
    return answered(replace(call, columns=call.columns.with_rows(rows)), limits, model, columns)


def scored_block(call: Call, what: str, features: Any, label: Any, weight: Any, model: ObjectModel, piece: Any) -> Any:
    """Return what an estimator's predictions of a partition add to its score.

    Parameters
    ----------
    weight
        The column of weights of a frame.
    piece
        A frame with the features, the label and perhaps weights; or inputs, targets and perhaps weights, as a list.
    """
    rows = predicted_block(call, features, label, weight, model, piece)
    return None if rows is None else scored(what, rows.truth, rows.predicted, rows.weights)


def predicted_block(
    call: Call, features: Any, label: Any, weight: Any, model: ObjectModel, piece: Any
) -> Predictions | None:
    """Targets, predictions and weights of a partition, which is as of :func:`scored_block`; None if it is empty.

    Raises
    ------
    ValueError
        Features, targets and weights of arrays are not as many, so their rows don't belong together; or the model made
        another number of rows.
    """
    if isinstance(piece, list | tuple):
        if all(hasattr(each, "index") and hasattr(each, "iloc") for each in piece):
            check_same_index(_where("the data"), piece)
        x = piece[0] if hasattr(piece[0], "iloc") else _plain(piece[0])
        truth, *weights = [_complete(what, each) for what, each in zip(("targets", "weights"), piece[1:], strict=False)]
        if len({len(each) for each in (x, truth, *weights)}) > 1:
            counts = ", ".join(str(len(each)) for each in (x, truth, *weights))
            raise ValueError(
                f"The arrays of {_where('a block')} have {counts} rows; they have to be the same. Cut the arrays "
                "alike, or call compute_chunk_sizes() on those of unknown length: they are cut as the first one then."
            )
    else:
        left = [name for name in piece.columns if name != weight]
        one, several, _ = chosen_columns(named("x"), left, features, label)
        x, truth = piece[one if several is None else several], _complete("targets", piece[label])
        weights = [] if weight is None else [_complete("weights", piece[weight])]
    if not len(x):
        return None
    with _as_at_the_call(model):
        predicted = np.asarray(model.call(call, [x]))
    if predicted.shape[:1] != (len(x),):
        raise ValueError(
            f"{model.name}, on {_where('a block')}, made an array of shape {predicted.shape} of {len(x)} rows. Make "
            "one row of each."
        )
    return Predictions(truth=np.asarray(truth), predicted=predicted, weights=weights[0] if weights else None)


def answered(call: Call, limits: PredictLimits, model: Any, values: list[Any], *, drawn_for: Any = None) -> Any:
    """Return what a model says of rows: in its process on a Dask worker, or here.

    Parameters
    ----------
    drawn_for
        What random numbers of the model depend on. Default: the key of the task.
    """
    where = _where("a block")
    if isinstance(model, ObjectModel):
        with _as_at_the_call(model):
            return model.ask(call, values, where)
    arrays = fitting(where, values, call.columns)
    if call.verb == "predict" and not len(arrays[0]):
        return [column.empty(0) for column in call.outputs]
    if isinstance(model, ModelParts):
        call = replace(call, block_seed=zlib.crc32(repr(drawn_for or where).encode()))
        return ModelProcesses.of(get_worker()).ask(model, limits, call, arrays, where)
    with _as_at_the_call(model):
        return model.ask(call, arrays)


def _as_at_the_call(model: ObjectModel | LocalModel) -> AbstractContextManager[None]:
    """Return the settings of the process that asked for predictions, while one of Dask's threads makes them."""
    if isinstance(model, ObjectModel):
        model.opened()  # imports what it needs
    return as_at_the_call(model.settings)


def as_at_the_call(settings: Settings) -> AbstractContextManager[None]:
    """Return settings of a script, while one of Dask's threads works for it."""
    try:
        worker = get_worker()
    except ValueError:
        return settings.in_task(alone=None)
    is_own = worker.address.startswith("inproc://")  # so the script's process
    return settings.in_task(alone=None if is_own else worker.state.nthreads == 1)


def chosen(place: int, outputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return one of the outputs that a task has made."""
    return outputs[place]


def _plain(block: Any) -> np.ndarray:
    check_plain(_where("A block"), block)
    return np.asarray(block)


def _complete(what: str, values: Any) -> np.ndarray:
    """Targets or weights as an array, of which none is missing."""
    values = values if hasattr(values, "iloc") else _plain(values)
    check_none_missing(f"{what} in {_where('a block')}", values)
    return as_array(values) if hasattr(values, "iloc") else np.asarray(values)


def _unwrapped(block: Any) -> Any:
    while isinstance(block, list):
        (block,) = block
    return block


def _place() -> Any:
    """Return the number of the partition, which stays that of the frame where Dask makes one task of several."""
    try:
        key = get_worker().get_current_task()
    except ValueError:
        return None
    return key[-1] if isinstance(key, tuple) else key


def _where(else_: str) -> str:
    """Return how errors call the block: the key of the Dask task that calls."""
    try:
        return f"block {get_worker().get_current_task()}"
    except ValueError:
        return else_
