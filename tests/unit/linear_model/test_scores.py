"""Scores of Dask collections beside scikit-learn's; what is computed here is by threads."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score

from dask_train import linear_model as ours
from dask_train.linear_model.scores import accuracy, explained

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 2))
SIGNAL = X @ [1, -1] + RANDOM.normal(size=50)
TRUTHS = np.array([False, True])
WEIGHTS = RANDOM.integers(0, 3, 50)


def on_dask(array):
    return da.from_array(array, chunks=((17, 0, 3, 30), *array.shape[1:]))


def signs(x):
    return x[:, 0] > 0


def first(x):
    return x[:, 0]


def squared(y, predicted):
    return (y - predicted) ** 2


@pytest.mark.parametrize("dtype", [float, int, bool])
def test_weights_of_any_dtype_count_as_scikit_learn_has_it(dtype):
    weights = WEIGHTS.astype(dtype)
    of_dask = [on_dask(array) for array in (X, SIGNAL > 0, weights)]
    assert accuracy(signs, TRUTHS, of_dask) == pytest.approx(
        accuracy_score(SIGNAL > 0, X[:, 0] > 0, sample_weight=weights)
    )
    of_dask[1] = on_dask(SIGNAL)
    wanted = r2_score(SIGNAL, X[:, 0], sample_weight=weights)
    assert explained(first, squared, of_dask) == pytest.approx(wanted)


def test_a_column_of_targets_is_as_good_as_a_row_of_them():
    wanted = accuracy_score(SIGNAL > 0, X[:, 0] > 0)
    assert accuracy(signs, TRUTHS, [on_dask(X), on_dask((SIGNAL > 0)[:, None])]) == pytest.approx(wanted)
    for predict, y in ((first, SIGNAL[:, None]), (lambda x: x[:, :1], SIGNAL)):
        found = explained(predict, squared, [on_dask(X), on_dask(y)])
        assert found == pytest.approx(r2_score(SIGNAL, X[:, 0]))


HOLES = np.where(np.arange(50) == 20, np.nan, SIGNAL)


@pytest.mark.parametrize(
    ("y", "weights", "told"),
    [
        (HOLES, None, "y has values that are NaN"),
        (SIGNAL, HOLES, "sample_weight has values that are NaN"),
        (SIGNAL, np.zeros(50), "weights come to 0, so no row counts"),
        (np.column_stack([SIGNAL, SIGNAL]), None, "A row of y has 2 values, and the model predicts 1 of each"),
    ],
    ids=["target", "weight", "no weight", "columns"],
)
def test_what_has_no_score_is_refused(y, weights, told):
    rest = [] if weights is None else [on_dask(weights)]
    with pytest.raises(ValueError, match=told):
        accuracy(signs, TRUTHS, [on_dask(X), on_dask(y), *rest])
    with pytest.raises(ValueError, match=told):
        explained(first, squared, [on_dask(X), on_dask(y), *rest])


def test_no_rows_have_no_score():
    for model, y in ((ours.Ridge(), SIGNAL), (ours.LogisticRegression(), SIGNAL > 0)):
        with pytest.raises(ValueError, match="no rows"):
            model.fit(X, y).score(on_dask(X)[:0], on_dask(y)[:0])


def test_targets_out_of_the_range_of_the_loss_are_refused_as_in_fit():
    model = ours.PoissonRegressor().fit(X, np.abs(SIGNAL))
    with pytest.raises(ValueError, match="out of the valid range of the loss: they are below 0"):
        model.score(on_dask(X), on_dask(SIGNAL))


def test_a_score_gathers_no_rows():
    model = ours.Ridge().fit(X, SIGNAL)
    given = []
    with dask.config.set(scheduler=lambda graph, keys, **_: given.append(keys) or dask.get(graph, keys)):
        model.score(on_dask(X), on_dask(SIGNAL))
    assert [len(keys) for keys in given] == [4, 4, 4], "the rows once, and twice a small sum of each block"


def test_constant_targets_and_too_few_rows():
    model = ours.Ridge().fit(X, np.full(50, 2.0))
    assert model.score(on_dask(X), on_dask(np.full(50, 2.0))) == model.score(X, np.full(50, 2.0)) == 1.0
    assert model.score(on_dask(X), on_dask(np.full(50, 3.0))) == model.score(X, np.full(50, 3.0)) == 0.0
    with pytest.warns(UserWarning, match="not well-defined with less than two"):
        assert np.isnan(model.score(on_dask(X)[:1], on_dask(SIGNAL)[:1]))
