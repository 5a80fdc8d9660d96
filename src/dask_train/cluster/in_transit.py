"""What a pickled Keras model unpickles by. Travels by value with each model: its readers may have no dask-train.

The scheduler reads every graph, and with it each model that is a task's argument. It neither needs the model nor,
often, has Keras; so there the parts stay parts, and are forwarded to the Dask worker as they came.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.compat.distributed import is_dask_worker_here


def reduce_parts(code: bytes, header: dict[str, Any], arrays: list[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Answer ``__reduce__`` for a model in parts.

    Parameters
    ----------
    code
        :func:`open_model`, pickled by value.
    header, arrays
        As :func:`dask_train.keras_models.serialization.model_to_parts` returns them. With pickle's protocol 5 the
        arrays leave as buffers of their own, without a copy, and Dask sends each as a frame.
    """
    return operator.call, (_Code(code), code, header, arrays)


def open_model(code: bytes, header: dict[str, Any], arrays: list[Any]) -> Any:
    """Rebuild a model, except where that is not wanted or can't be.

    Returns
    -------
    keras.Model or ModelInTransit
        The latter on a scheduler that reads a graph; and on a Dask worker where the model can't be rebuilt. There an
        exception would end the worker's stream from the scheduler, and the task would wait for ever.
    """
    on_worker = is_dask_worker_here()
    if not on_worker and _scheduler_reads_graph():
        return ModelInTransit(code, header, arrays)
    try:
        from dask_train.keras_models.serialization import parts_to_model

        return parts_to_model(header, arrays)
    except Exception as error:
        if not on_worker:
            raise
        return ModelInTransit(code, header, arrays, error)


class ModelInTransit:
    """A Keras model that is not rebuilt in this process; pickles on to where it is, and raises where it is used.

    Raises
    ------
    TypeError
        On use: it names the model, and why it could not be rebuilt.
    """

    def __init__(self, code: bytes, header: dict[str, Any], arrays: list[Any], error: Exception | None = None) -> None:
        self._code, self._header, self._arrays, self._error = code, header, arrays, error

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reduce_parts(self._code, self._header, self._arrays)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self._header, self._arrays

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def __repr__(self) -> str:
        return f"<Keras model {self._header['name']!r} of class {self._header['class']}, not rebuilt here>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - any call of the model
        """Raise: there is no model here to call."""
        raise self._explain()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Dask and Python ask for what a value may or may not have
            raise AttributeError(name)
        raise self._explain()

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise self._explain()
        object.__setattr__(self, name, value)

    def _explain(self) -> TypeError:
        error = TypeError(f"{self!r}: {self._error or 'the scheduler only passes it on; use it in a task.'}")
        error.__cause__ = self._error
        return error


class _Code:
    """Unpickles to what was pickled, with cloudpickle alone."""

    def __init__(self, code: bytes) -> None:
        self._code = code

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return cloudpickle.loads, (self._code,)


def _scheduler_reads_graph() -> bool:
    """Whether ``Scheduler.update_graph`` is unpickling us, which in a local cluster happens in the client's process."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_name == "update_graph" and frame.f_globals.get("__name__") == "distributed.scheduler":
            return True
    return False
