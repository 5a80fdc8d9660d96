"""Random numbers of Keras that are the same for each row."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import random

from dask_train.compat.keras.draws import _INSTEAD, draws_replaced

DRAWN = {
    "normal": lambda n: random.normal((n, 3), mean=2.0, stddev=0.5),
    "truncated normal": lambda n: random.truncated_normal((n, 3)),
    "uniform": lambda n: random.uniform((n, 3), minval=-1, maxval=3, seed=4),
    "randint": lambda n: random.randint((n,), minval=0, maxval=10),
    "categorical": lambda n: random.categorical(np.tile([[0.1, 2.0, 0.3]], (n, 1)).astype("f4"), 2),
    "dropout": lambda n: random.dropout(np.ones((n, 3), "f4"), 0.5),
    "shuffle": lambda n: random.shuffle(np.ones((n, 3), "f4")),
    "gamma": lambda n: random.gamma((n, 3), alpha=0.5),
    "binomial": lambda n: random.binomial((n, 3), counts=10.0, probabilities=0.35),
    "beta": lambda n: random.beta((n, 3), alpha=1.0, beta=3.0),
}


@pytest.mark.parametrize("name", list(DRAWN))
def test_each_row_has_the_same(name):
    draw = DRAWN[name]
    like = draw(4)
    with draws_replaced():
        few, more = np.array(draw(2)), np.array(draw(4))
        again = np.array(draw(4))
    np.testing.assert_array_equal(more, again)
    np.testing.assert_array_equal(few, more[:2])
    assert (more == more[0]).all()
    assert (more.shape, str(more.dtype)) == (tuple(like.shape), keras.backend.standardize_dtype(like.dtype))


def test_they_are_drawn_again_afterwards():
    with pytest.raises(KeyError), draws_replaced():
        raise KeyError
    assert not any(getattr(keras.src.backend.random, name) is function for name, function in _INSTEAD.items())
    drawn = [np.array(random.normal((3,))) for _ in range(2)]
    assert not (drawn[0] == drawn[1]).any()
