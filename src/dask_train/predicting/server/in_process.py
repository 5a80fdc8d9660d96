"""Models that answer in the caller's process: estimators and functions, and any model without a cluster."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.collections.missing import with_nan_text
from dask_train.collections.partition.text import text_rows
from dask_train.data.structure import filled
from dask_train.predicting.server.in_use import current, in_use
from dask_train.predicting.server.runners import runner_of
from dask_train.predicting.server.values import Call, in_dtype, outputs_of, plain
from dask_train.settings.process import Settings


class LocalModel:
    """A Keras model or torch module of this process, for Dask's threads; it can't travel.

    Parameters
    ----------
    model
        As the user has it, so what is computed later is of the model as it is then.
    name, token, settings
        As :class:`~dask_train.predicting.server.values.ModelParts` has them.
    """

    def __init__(self, model: Any, name: str, token: str, settings: Settings) -> None:
        self.name, self.token, self.settings = name, token, settings
        self._model, self._runner = model, runner_of(model)
        self._made_in = current()

    def ask(self, call: Call, arrays: Sequence[np.ndarray]) -> Any:
        """Return what the model says of the rows, while no other task uses any part of it."""
        columns = [
            text_rows("of the block", array) if column.is_text else np.ascontiguousarray(array, column.dtype)
            for array, column in zip(arrays, call.columns, strict=True)
        ]
        with in_use(self._model, self._made_in):
            if call.verb != "predict":
                answer = self._runner.evaluate if call.verb == "evaluate" else self._runner.logs
                return answer(call, columns, _nothing)
            out = [column.empty(len(columns[0])) for column in call.outputs]
            self._runner.predict(call, columns, out, _nothing)
            return out

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "local", self.token

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return _StayedBehind, (self.name,)


class _StayedBehind:
    """What arrives of a model that can't travel.

    Dask would report an error while a graph is pickled as "Could not serialize", below 60 lines of log.
    """

    def __init__(self, name: str) -> None:
        self._name, self.settings = name, Settings()

    def ask(self, call: Call, arrays: Sequence[np.ndarray]) -> NoReturn:  # noqa: ARG002 - as all models are asked
        raise TypeError(
            f"Model {self._name!r} was given to dask_train.predict when there was no Dask client, so it is used in "
            "that process alone, and its graph can't be computed in another. Make the distributed.Client first, or "
            "pass client=, and predict again; or compute with scheduler='threads'."
        )


class ObjectModel:
    """An estimator or a function, used within Dask's own tasks; travels as one pickle.

    Parameters
    ----------
    model
        Whatever can be called, or has the method.
    method
        The name of its method; None to call it.
    name, token, settings
        As :class:`~dask_train.predicting.server.values.ModelParts` has them.
    """

    def __init__(self, model: Any, method: str | None, name: str, token: str, settings: Settings) -> None:
        self.name, self.token, self.settings, self._method = name, token, settings, method
        self._model = model
        self._opening = threading.Lock()
        self._closed: tuple[bytes, list[Any]] | None = None

    def call(self, call: Call, values: Sequence[Any]) -> Any:
        """Return what it returns for arrays or frames."""
        function: Callable[..., Any] = self.opened()
        of_method = getattr(self._model, "__self__", self._model)  # of a method that was passed as a function
        if hasattr(of_method, "get_params"):  # an estimator of scikit-learn's kind
            values = [with_nan_text(value) if hasattr(value, "iloc") else value for value in values]
        x = filled(call.columns.features, values.__getitem__)
        if isinstance(x, dict):
            return function(**x)
        return function(*x) if isinstance(x, tuple | list) else function(x)

    def ask(self, call: Call, values: Sequence[Any], where: str) -> list[np.ndarray]:
        """Return what it returns for a block, as arrays; each as planned.

        Raises
        ------
        ValueError
            It is not; the error names the block, which it calls ``where``.
        """
        num_rows = len(values[0])
        if not num_rows:
            return [column.empty(0) for column in call.outputs]
        name = f"{self.name}, on {where},"
        outputs = outputs_of(name, call, self.call(call, values), num_rows)
        for each in outputs:
            _check_index(name, each, values[0])
        return [in_dtype(name, plain(each), column) for each, column in zip(outputs, call.outputs, strict=True)]

    @property
    def classes(self) -> Any:
        """The labels that a classifier of scikit-learn chooses among; None if it is none, or has been closed."""
        return getattr(self._model, "classes_", None)

    @property
    def num_features(self) -> int | None:
        """How many an estimator was fitted with; None if it is unknown, or has been closed."""
        return getattr(self._model, "n_features_in_", None)

    def opened(self) -> Callable[..., Any]:
        """Return the method, or the function itself; opened once in each process."""
        with self._opening:
            if self._model is None and self._closed is not None:
                self._model = pickle.loads(self._closed[0], buffers=self._closed[1])  # noqa: S301 - sent as all tasks
        return self._model if self._method is None else getattr(self._model, self._method)

    @property
    def pickled(self) -> bytes:
        """The model, without what lies in buffers of its own."""
        if self._closed is None:
            buffers: list[pickle.PickleBuffer] = []
            data = cloudpickle.dumps(self._model, protocol=5, buffer_callback=buffers.append)
            self._closed = data, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        return self._closed[0]

    def __getstate__(self) -> dict[str, Any]:
        _ = self.pickled
        return {**self.__dict__, "_model": None, "_opening": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opening=threading.Lock())

    def __sizeof__(self) -> int:
        data, buffers = self._closed or (b"", [])
        return object.__sizeof__(self) + len(data) + sum(buffer.nbytes for buffer in buffers)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "object", self.token


def _check_index(name: str, output: Any, rows: Any) -> None:
    """Refuse rows of pandas in another order, or other rows, than the frame's: they would be taken by their place."""
    if not (hasattr(output, "iloc") and hasattr(rows, "iloc")):
        return
    is_default = type(output.index).__name__ == "RangeIndex" and (output.index.start, output.index.step) == (0, 1)
    if not is_default and not output.index.equals(rows.index):
        raise ValueError(
            f"{name} returned rows of another index, or in another order, than those that it was given. Return them as "
            "they came; or an array, where the index means nothing."
        )


def _nothing() -> None:
    """Do nothing: no one waits for a beat in this process."""
