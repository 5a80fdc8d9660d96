"""Keras models for prediction and evaluation: taken apart for the way, and run without Keras' own loop.

``Model.predict`` sets up a data pipeline and callbacks at each call, and copies each batch twice on its way in. Here a
model has one compiled function for batches of one shape; the last batch is padded, and cut (``benchmarks/predict.py``).
A model that looks at the other rows of a batch takes the last one as it is, as ``Model.predict`` does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Column, Columns
from dask_train.data.structure import filled, leaves
from dask_train.errors import in_words
from dask_train.fitting.roles.weights import value_of
from dask_train.keras_models import state
from dask_train.keras_models.serialization import model_to_parts, parts_to_model
from dask_train.keras_models.text_inputs import check_text_inputs
from dask_train.predicting.server.keras_backends import Run, backend_of
from dask_train.predicting.server.keras_evaluation import Evaluation
from dask_train.predicting.server.padding import Kept, alike, filled_up, other_rows
from dask_train.predicting.server.values import Call, in_dtype, outputs_of


def take_apart(model: Any, *, compiled: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return a header and arrays without the optimizer's state, and without the compilation if that is to stay."""
    header, arrays = model_to_parts(model, optimizers=False)
    header = {
        **header,
        "compilations": header["compilations"] if compiled else [],
        "run_eagerly": bool(model.run_eagerly),
        "jit_compile": bool(model.jit_compile),
    }
    return header, arrays


def open_parts(header: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """Return the model; each array is copied once."""
    fields = pickle.loads(header)  # noqa: S301 - sent by the client, as all Dask tasks are
    model = parts_to_model(fields, list(arrays))
    model.run_eagerly, model.jit_compile = fields["run_eagerly"], fields["jit_compile"]
    return model


def taken_dtype(dtype: np.dtype) -> np.dtype:
    """Return what Keras makes of an array of that dtype, before the model sees it."""
    if dtype.kind == "f":
        return np.dtype(keras.config.floatx())
    return dtype.newbyteorder("=")  # torch takes no other order of bytes


class KerasRunner:
    """A Keras model that answers calls in this process, one at a time.

    Parameters
    ----------
    model : keras.Model
        Built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._backend = backend_of(keras.backend.backend())
        self._functions: dict[Any, Run] = {}
        self._takes_padding: dict[Any, bool] = {}
        self._evaluation = Evaluation(model, self._backend)
        self._seeds = [(variable, np.array(value_of(variable))) for variable in state.seed_states(model)]

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
        self._seed(call)
        for start in range(0, num_rows, call.batch_size):
            stop = min(start + call.batch_size, num_rows)
            batch = [column[start:stop] for column in columns]
            outputs = self._outputs(call, batch) if stop - start == call.batch_size else self._of_rest(call, batch)
            for output, column, target in zip(outputs, call.outputs, out, strict=True):
                target[start:stop] = in_dtype("the model", output, column)
            beat()

    def _of_rest(self, call: Call, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs of a batch that is not full.

        It is padded, so that nothing is compiled for its shape, unless something of the padding gets into its rows.
        """
        key = _key(call)
        if not self._takes_padding.get(key, self._may_take_padding(call)):
            return self._outputs(call, rows)
        padded = [filled_up(column, column[-1:], call.batch_size) for column in rows]
        if key in self._takes_padding:
            return [output[: len(rows[0])] for output in self._outputs(call, padded)]
        outputs = self._tried(call, rows, padded)
        return self._outputs(call, rows) if outputs is None else outputs

    def _tried(self, call: Call, rows: Sequence[np.ndarray], padded: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """Return the outputs of a padded batch if nothing of the padding gets into its rows, else None, and note which.

        Other padding is tried in the same shape, with the same random numbers. A batch that shows nothing is not noted,
        so that a later one is tried.
        """
        others = [found for column in rows if (found := other_rows(column[-1:]))]
        if len(others) < len(rows):
            return None
        before, kept = self._random_state(), Kept(state.statistics(self._model), state.as_array)
        outputs = [output[: len(rows[0])] for output in self._outputs(call, padded)]
        after = self._random_state()
        counts_padding = kept.put_back()  # in statistics
        # Whatever pads, outputs that are not finite stay as they are.
        are_finite = all(np.isfinite(output).all() for output in outputs if output.dtype.kind == "f")
        takes_padding = (not counts_padding and are_finite) and all(
            self._are_alike(call, rows, other, outputs, before) for other in zip(*others, strict=True)
        )
        kept.put_back()
        if counts_padding or are_finite:
            self._takes_padding[_key(call)] = takes_padding
        self._put_random_state(after if takes_padding else before)
        return outputs if takes_padding else None

    def _may_take_padding(self, call: Call) -> bool:
        """Return whether padding can be tried, and spares something.

        What comes of it is seen in floating numbers alone: the largest of several may stay so whatever the padding.
        """
        is_compiled = keras.backend.backend() != "torch" and not self._model.run_eagerly
        return is_compiled and any(np.dtype(column.dtype).kind == "f" for column in call.outputs)

    def _are_alike(
        self,
        call: Call,
        rows: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        random_state: Sequence[np.ndarray],
    ) -> bool:
        """Return whether the outputs are the same if other rows pad the batch."""
        self._put_random_state(random_state)
        padded = [filled_up(column, other, call.batch_size) for column, other in zip(rows, others, strict=True)]
        try:
            again = [output[: len(rows[0])] for output in self._outputs(call, padded)]
        except Exception:  # of a model, or under a setting, that takes no such rows
            return False
        return len(again) == len(outputs) and all(map(alike, outputs, again))

    def _outputs(self, call: Call, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        predicted = self._function(call)(filled(call.columns.features, rows.__getitem__))
        return [_numpy(output) for output in outputs_of("the model", call, predicted, len(rows[0]))]

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """Return what the model's metrics count over the rows, as numbers that add up over batches and partitions."""
        self._seed(call)
        return self._evaluation.counts(call, columns, beat)

    def logs(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> dict[str, Any]:
        """Return what Keras' own ``evaluate`` gives, once the last batch has followed :attr:`Call.before`."""
        logs = self._evaluation.logs(call, columns)
        beat()
        return logs

    def _seed(self, call: Call) -> None:
        if call.block_seed is None:
            return
        self._backend.seed(call.block_seed)
        for variable, (seed, *counters) in self._seeds:
            mixed = (int(seed) + call.block_seed) % (1 << 31)  # of which every backend's dtype has room
            variable.assign(np.array([mixed, *counters], keras.backend.standardize_dtype(variable.dtype)))

    def _random_state(self) -> list[np.ndarray]:
        return [np.array(value_of(variable)) for variable, _ in self._seeds]

    def _put_random_state(self, values: Sequence[np.ndarray]) -> None:
        for (variable, _), value in zip(self._seeds, values, strict=True):
            variable.assign(value)

    def _function(self, call: Call) -> Run:
        key = _key(call)
        if key not in self._functions:
            self._functions[key] = self._backend.predicting(self._model, eagerly=False)
        return self._functions[key]


def _key(call: Call) -> Any:
    return call.batch_size, call.columns.columns, repr(call.columns.features)


def _numpy(output: Any) -> np.ndarray:
    if keras.backend.standardize_dtype(output.dtype) == "bfloat16":
        output = keras.ops.cast(output, "float32")
    return output if isinstance(output, np.ndarray) else keras.ops.convert_to_numpy(output)


def described(model: Any, columns: Columns) -> tuple[Any, tuple[Column, ...]]:
    """Return the structure of a model's outputs, and what each is, without any data.

    Returns
    -------
    places, outputs
        As :class:`~dask_train.predicting.server.values.Call` has them.

    Raises
    ------
    ValueError
        Rows of these columns don't go through the model, or it does not make a row of each.
    """
    description = " and ".join(f"rows of {_keras_dtype(column)} {column.row_shape or 'numbers'}" for column in columns)
    if not model.built:
        raise ValueError(
            f"Model {model.name!r} has no weights yet, so each process would make its own. Build or train it first."
        )
    check_unordered(model)
    try:
        check_text_inputs(model, filled(columns.features, lambda number: columns[number].is_text))
        if type(model).predict_step is not keras.Model.predict_step:
            rows = [np.full((2, *c.row_shape), b"" if c.is_text else 0, c.dtype) for c in columns]
            predict = backend_of(keras.backend.backend()).predicting(model, eagerly=True)
            sample_outputs = predict(filled(columns.features, rows.__getitem__))
        else:
            made_of = [keras.KerasTensor((2, *column.row_shape), _keras_dtype(column)) for column in columns]
            # Of a call, in which Keras leaves `training` out where the model takes none, and adjusts ranks of inputs.
            sample_outputs = state.called_symbolically(model, filled(columns.features, made_of.__getitem__))
    except Exception as error:
        raise ValueError(
            f"The data does not fit model {model.name!r}: it has {description}. {in_words(error)}"
        ) from error
    places = Columns.of(sample_outputs)[0].features
    return places, tuple(_output(model, output) for output in leaves(sample_outputs))


def check_unordered(model: Any) -> None:
    """Refuse models whose layers keep state from batch to batch.

    Raises
    ------
    ValueError
        One does.
    """
    if (layer := state.stateful_layer(model)) is not None:
        raise ValueError(
            f"Layer {layer.name!r} of model {model.name!r} is stateful: what it makes of a batch depends on those "
            "before, and blocks are gone through side by side. Make the model with stateful=False."
        )


def _keras_dtype(column: Column) -> str:
    return "string" if column.is_text else np.dtype(column.dtype).name


def _output(model: Any, output: Any) -> Column:
    shape = tuple(output.shape)
    if not shape or shape[0] not in (2, None) or None in shape[1:]:  # layers of text lose the number of rows
        raise ValueError(
            f"Model {model.name!r} makes an output of shape {shape} of 2 rows; it has to make one row of each, of a "
            "shape that is known."
        )
    dtype = keras.backend.standardize_dtype(output.dtype)
    if dtype == "string":
        raise ValueError(
            f"Model {model.name!r} makes text, which does not come out of a model process. Let it make numbers, and "
            "look the texts up in what comes out."
        )
    # Dask's arrays, as shared memory, have the dtypes of NumPy itself.
    return Column(dtype=np.dtype("float32" if dtype == "bfloat16" else dtype).str, row_shape=shape[1:])
