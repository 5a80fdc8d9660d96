"""Tensors count as the arrays that they hold, and all else stays what it is."""

from __future__ import annotations

from typing import Any

import dask.array as da
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import torch

import dask_train as dt
from dask_train.collections.tensors import as_numpy

ROWS = np.arange(6.0, dtype="f4").reshape(3, 2)
KINDS = [tf.constant, tf.Variable, torch.tensor, lambda rows: torch.nn.Parameter(torch.tensor(rows)), jnp.asarray]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_the_array_that_it_holds(kind: Any) -> None:
    found = as_numpy("x", kind(ROWS))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, ROWS)
    assert found.dtype == ROWS.dtype


@pytest.mark.parametrize(
    "value",
    [ROWS, da.from_array(ROWS), pd.DataFrame(ROWS), [1.0], tf.data.Dataset.range(3), torch.nn.Linear(2, 1), None],
)
def test_all_else_stays_what_it_is(value: Any) -> None:
    assert as_numpy("x", value) is value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (tf.ragged.constant([[1], [1, 2]]), "x has a RaggedTensor"),
        (tf.sparse.from_dense(ROWS), "x has a SparseTensor"),
        (torch.tensor(ROWS).to_sparse(), "x has a Tensor that is no array .*Sparse"),
    ],
)
def test_a_tensor_that_is_no_array_is_refused(value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        as_numpy("x", value)


@pytest.mark.parametrize(
    "value",
    [
        tf.cast(ROWS, tf.bfloat16),
        torch.tensor(ROWS).bfloat16(),
        ROWS.astype(ml_dtypes.bfloat16),
        da.from_array(ROWS.astype(ml_dtypes.bfloat16)),
    ],
    ids=["tensorflow", "torch", "numpy", "dask"],
)
def test_bfloat16_is_float32_of_the_same_values(value: Any) -> None:
    found = as_numpy("x", value)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, ROWS)
    np.testing.assert_array_equal(dt.predict(lambda x: x[:, 0], value).compute(), ROWS[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_data_of_a_run_and_of_a_prediction(kind: Any, pool: Any) -> None:
    def rows(session: Any) -> Any:
        return np.concatenate([x for x, _ in session.batches(batch_size=2, shuffle=False)])

    found = dt.train(rows, roles={"worker": 0}, data=(kind(ROWS), kind(ROWS[:, 0])))
    np.testing.assert_array_equal(found.results["worker"][0], ROWS)
    np.testing.assert_array_equal(dt.predict(lambda x: x[:, 0], kind(ROWS)).compute(), ROWS[:, 0])
