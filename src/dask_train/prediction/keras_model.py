"""Keras models for prediction and evaluation: taken apart for the way, and run without Keras' own loop.

``Model.predict`` sets up a data pipeline and callbacks at each call, and copies each batch twice on its way in. Here a
model has one compiled function for batches of one shape; the last batch is padded, and cut (``benchmarks/predict.py``).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout, filled, leaves
from dask_train.fit_roles.metrics import Metrics
from dask_train.fit_roles.models import made
from dask_train.frameworks.keras.serialization import model_to_parts
from dask_train.prediction.scores import Counted
from dask_train.prediction.values import ALIGNMENT_BYTES, Call


def take_apart(model: Any, *, compiled: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A header and arrays without the optimizer's state, and without the compilation where that is not needed."""
    header, arrays = model_to_parts(model)
    num_layers, num_seeds, _ = header["counts"]
    kept = num_layers + num_seeds
    for compilation in header["compilations"]:
        compilation["config"] = _without_optimizer(compilation["config"])
    header = {
        **header,
        "compilations": header["compilations"] if compiled else [],
        "optimizers": [],
        "counts": [num_layers, num_seeds, 0],
        "dtypes": header["dtypes"][:kept],
        "run_eagerly": bool(model.run_eagerly),
        "jit_compile": bool(model.jit_compile),
    }
    return header, arrays[:kept]


def _without_optimizer(config: str) -> str:
    told = json.loads(config)
    return json.dumps({**told, "optimizer": "sgd"}) if isinstance(told, dict) and "optimizer" in told else config


def open_parts(header: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """The model; each array is copied once."""
    told = pickle.loads(header)  # noqa: S301 - sent by the client, as all Dask tasks are
    model = made(told, list(arrays))
    model.run_eagerly, model.jit_compile = told["run_eagerly"], told["jit_compile"]
    return model


def taken_dtype(dtype: np.dtype) -> np.dtype:
    """What Keras makes of an array of that dtype, before the model sees it."""
    if dtype.kind == "f":
        return np.dtype(keras.config.floatx())
    return dtype


class KerasRunner:
    """A Keras model that answers calls in this process, one at a time.

    Parameters
    ----------
    model : keras.Model
        Built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._functions: dict[Any, Callable[..., Any]] = {}
        self._metrics: Metrics | None = None

    def predict(
        self, call: Call, columns: Sequence[np.ndarray], out: Sequence[np.ndarray], beat: Callable[[], None]
    ) -> None:
        """Write what the model says of the rows into ``out``.

        Parameters
        ----------
        call
            What is asked.
        columns
            ``(num_rows, *row_shape)`` each. Read without a copy where they lie in aligned memory that may be written
            to, except the last batch; else one copy.
        out
            ``(num_rows, *row_shape)`` for each output; one copy.
        beat
            Called after each batch.
        """
        num_rows = len(columns[0])
        run = self._function(call)
        for start in range(0, num_rows, call.batch_size):
            stop = min(start + call.batch_size, num_rows)
            rows = [_batch(column[start:stop], call.batch_size) for column in columns]
            found = run(filled(call.layout.x, rows.__getitem__))
            for place, output in enumerate(leaves(found)):
                out[place][start:stop] = _numpy(output, call.batch_size)[: stop - start]
            beat()

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """What the model's metrics count over the rows, as numbers that add up over batches and partitions."""
        if self._metrics is None:
            self._metrics = Metrics(self._model)
        before = self._metrics.state()
        total: list[np.ndarray] = []
        for start in range(0, len(columns[0]), call.batch_size):
            rows = [column[start : start + call.batch_size] for column in columns]
            self._model.test_on_batch(*call.layout.pack(rows))  # which begins by resetting the metrics
            counted = self._metrics.counted()
            total = [before + now for before, now in zip(total, counted, strict=True)] if total else counted
            beat()
        self._metrics.restore(before)
        return total

    def _function(self, call: Call) -> Callable[..., Any]:
        key = (call.batch_size, call.columns, repr(call.layout.x))
        if key not in self._functions:
            self._functions[key] = self._compiled()
        return self._functions[key]

    def _compiled(self) -> Callable[..., Any]:
        model = self._model
        if keras.backend.backend() != "tensorflow":
            return model.predict_on_batch
        import tensorflow as tf

        def step(x: Any) -> Any:
            return model.predict_step((x,))

        function = step if model.run_eagerly else tf.function(step, jit_compile=bool(model.jit_compile))
        return lambda x: function(keras.tree.map_structure(_tensor, x))


def metric_results(model: Any, layout: Layout, counted: Counted) -> dict[str, Any]:
    """What a model's metrics say when they have counted that; its own counts are afterwards as they were.

    A row of the data goes through the model, since metrics have no variables before that.
    """
    metrics = Metrics(model)
    before = metrics.state()
    try:
        model.test_on_batch(*layout.pack(counted.sample))
        metrics.set(counted.counts)
        return {name: _number(value) for name, value in sorted(metrics.results().items())}  # as Keras has them
    finally:
        metrics.restore(before)


def _number(value: Any) -> Any:
    array = keras.ops.convert_to_numpy(value) if not isinstance(value, float | int) else np.asarray(value)
    return float(array) if array.ndim == 0 else array


def _batch(rows: np.ndarray, batch_size: int) -> np.ndarray:
    """The rows, with zeros after them up to the size of a batch."""
    if len(rows) == batch_size:
        return rows
    padded = np.zeros((batch_size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _tensor(array: np.ndarray) -> Any:
    import tensorflow as tf

    shared = array.flags.writeable and array.flags.c_contiguous and not array.ctypes.data % ALIGNMENT_BYTES
    if shared and array.dtype.kind in "iuf":
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def _numpy(output: Any, batch_size: int) -> np.ndarray:
    array = output if isinstance(output, np.ndarray) else keras.ops.convert_to_numpy(output)
    if array.ndim == 0 or len(array) != batch_size:
        raise ValueError(
            f"The model made an output of shape {array.shape} of {batch_size} rows; it has to make one row of each."
        )
    return array


def described(model: Any, layout: Layout, columns: Sequence[Column]) -> tuple[Any, tuple[Column, ...]]:
    """The structure of a model's outputs, and what each is, without any data.

    Returns
    -------
    places, outputs
        As :class:`~dask_train.prediction.values.Call` has them.

    Raises
    ------
    ValueError
        Rows of these columns don't go through the model, or it does not make a row of each.
    """
    told = " and ".join(f"rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}" for column in columns)
    if not model.built:
        raise ValueError(
            f"Model {model.name!r} has no weights yet, so each process would make its own. Build or train it first."
        )
    try:
        if type(model).predict_step is not keras.Model.predict_step:
            rows = [keras.ops.zeros((2, *column.row_shape), np.dtype(column.dtype).name) for column in columns]
            found = model.predict_step((filled(layout.x, rows.__getitem__),))
        else:
            made_of = [keras.KerasTensor((2, *c.row_shape), np.dtype(c.dtype).name) for c in columns]
            found = model.compute_output_spec(filled(layout.x, made_of.__getitem__), training=False)
    except Exception as error:
        raise ValueError(
            f"The data does not fit model {model.name!r}: it has {told}. {type(error).__name__}: {error}"
        ) from error
    places = Layout.of(found)[0].x
    return places, tuple(_output(model, output) for output in leaves(found))


def _output(model: Any, output: Any) -> Column:
    shape = tuple(output.shape)
    if not shape or shape[0] != 2 or None in shape:
        raise ValueError(
            f"Model {model.name!r} makes an output of shape {shape} of 2 rows; it has to make one row of each, of a "
            "shape that is known."
        )
    dtype = keras.backend.standardize_dtype(output.dtype)
    # Dask's arrays, as shared memory, have the dtypes of NumPy itself.
    return Column(dtype=np.dtype("float32" if dtype == "bfloat16" else dtype).str, row_shape=shape[1:])
