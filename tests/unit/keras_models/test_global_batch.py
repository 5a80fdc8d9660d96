"""Rows of the global batch are the rows of a batch, unless somebody gathers them."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import dask_train as dt
from dask_train.keras_models.global_batch import gathered_by, without_global_batch

ROWS = np.arange(6).reshape(3, 2)


def doubled(tensors):
    return [np.concatenate([one, one]) for one in tensors]


def test_one_process_has_all_rows():
    tensors = {"a": ROWS, "b": [ROWS]}
    assert dt.keras.global_batch(ROWS) is ROWS
    assert dt.keras.global_batch(tensors) is tensors


def test_what_gathers_is_given_all_tensors_at_once():
    calls = []
    with gathered_by(lambda tensors: calls.append(len(tensors)) or doubled(tensors)):
        found = dt.keras.global_batch({"a": ROWS, "b": (ROWS[:, 0], ROWS)})
        one = dt.keras.global_batch(ROWS)
    assert calls == [3, 1]
    assert [found["a"].shape, *(each.shape for each in found["b"])] == [(6, 2), (6,), (6, 2)]
    np.testing.assert_array_equal(one, [*ROWS, *ROWS])
    assert dt.keras.global_batch(ROWS) is ROWS


def test_it_ends_with_an_error():
    with pytest.raises(KeyError), gathered_by(doubled):
        raise KeyError
    assert dt.keras.global_batch(ROWS) is ROWS


def test_where_there_is_none_it_is_an_error():
    alone = []
    with without_global_batch("Workers take no steps together.", lambda: bool(alone)):
        with pytest.raises(ValueError, match=r"no rows of other workers: Workers take no steps together\."):
            dt.keras.global_batch(ROWS)
        alone.append(True)
        assert dt.keras.global_batch(ROWS) is ROWS
    with without_global_batch(None):
        assert dt.keras.global_batch(ROWS) is ROWS


def test_symbols_of_a_model_that_is_put_together_are_left_alone():
    symbol = keras.Input((2,))
    with gathered_by(doubled):
        assert dt.keras.global_batch(symbol) is symbol
