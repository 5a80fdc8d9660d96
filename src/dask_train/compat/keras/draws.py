"""Random numbers of Keras that are constant: the same for each row, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops
from keras.src import backend


@contextmanager
def draws_replaced() -> Iterator[None]:
    """While it lasts, functions of ``keras.random`` return numbers from the middle of what they draw from.

    Replaces functions of ``keras.src.backend.random``, which those of ``keras.random`` and Keras' layers call. Without
    it nothing is known of losses of steps that draw random numbers.
    """
    before = {name: getattr(backend.random, name) for name in _INSTEAD}
    for name, function in _INSTEAD.items():
        setattr(backend.random, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(backend.random, name, function)


# Of a normal distribution, in standard deviations: with zeros much that is multiplied would be left out.
_NORMAL = 0.3


def _filled(shape: Any, value: Any, dtype: Any) -> Any:
    return ops.broadcast_to(ops.cast(value, dtype or keras.config.floatx()), shape)


def _normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, mean + _NORMAL * stddev, dtype)


def _uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, minval + 0.4 * (maxval - minval), dtype)


def _whole(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, (minval + maxval) // 2, dtype)


def _category(logits: Any, num_samples: Any, dtype: Any = "int64", seed: Any = None) -> Any:  # noqa: ARG001
    likeliest = ops.cast(ops.argmax(logits, axis=-1), dtype)[:, None]
    return ops.repeat(likeliest, num_samples, axis=1)


def _as_it_is(inputs: Any, *_: Any, **__: Any) -> Any:
    return inputs


def _gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, alpha, dtype)


def _binomial(shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, ops.floor(ops.multiply(counts, probabilities)), dtype)


def _beta(shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None) -> Any:  # noqa: ARG001
    return _filled(shape, ops.divide(alpha, ops.add(alpha, beta)), dtype)


_INSTEAD = {
    "normal": _normal,
    "truncated_normal": _normal,
    "uniform": _uniform,
    "randint": _whole,
    "categorical": _category,
    "dropout": _as_it_is,
    "shuffle": _as_it_is,
    "gamma": _gamma,
    "binomial": _binomial,
    "beta": _beta,
}
