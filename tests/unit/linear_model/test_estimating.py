"""Predictions and scores of Dask collections, and frames with categories; what is computed here is by threads."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dask_train import linear_model as ours

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(500, 4))
SIGNAL = X @ [1, -1, 0.5, 0]
WEIGHTS = RANDOM.integers(0, 3, 500).astype(float)
BINARY = np.where(SIGNAL + RANDOM.logistic(size=500) > 0, "yes", "no")
CLASSES = np.digitize(SIGNAL + RANDOM.logistic(size=500), [-1, 1])
COUNTS = RANDOM.poisson(np.exp(SIGNAL / 3))
CHUNKS = (170, 0, 30, 300)
MODELS = [
    (ours.LogisticRegression(), BINARY),
    (ours.LogisticRegression(), CLASSES),
    (ours.PoissonRegressor(), COUNTS),
    (ours.TweedieRegressor(power=1.5), COUNTS),
    (ours.Ridge(), SIGNAL + 1e8),
    (ours.Lasso(alpha=0.1), np.column_stack([SIGNAL, COUNTS])),
]


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


def sparse_on_dask(array):
    return on_dask(array).map_blocks(scipy.sparse.csr_array)


@pytest.mark.parametrize("spread", [on_dask, sparse_on_dask], ids=["dense", "sparse"])
@pytest.mark.parametrize(("model", "y"), MODELS, ids=[str(model) + str(y.shape) for model, y in MODELS])
def test_predictions_are_lazy_and_scores_are_numbers_equal_to_those_of_arrays(model, y, spread):
    model = model.fit(X, y)
    for name in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            lazy, wanted = getattr(model, name)(spread(X)), getattr(model, name)(X)
            assert (lazy.chunks[0], lazy.shape, lazy.dtype) == (CHUNKS, wanted.shape, wanted.dtype), name
            found = lazy.compute()
            assert type(found) is np.ndarray
            if found.dtype.kind == "U":
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    for weights in (None, WEIGHTS):
        spread_weights = None if weights is None else on_dask(weights)
        score = model.score(spread(X), on_dask(y), spread_weights)
        assert type(score) is float
        assert score == pytest.approx(model.score(X, y, weights), rel=1e-12)
    assert model.score(spread(X), y) == pytest.approx(model.score(X, y), rel=1e-12), "targets of NumPy"


def test_columns_of_categories_become_an_indicator_each():
    colours = pd.Categorical(RANDOM.choice(["red", "green"], 500), categories=["red", "green", "blue"])
    frame = pd.DataFrame({"a": X[:, 0], "colour": colours, "b": X[:, 1]})
    y = SIGNAL + (colours == "red")
    indicators = np.column_stack([X[:, 0], colours == "red", colours == "green", colours == "blue", X[:, 1]])
    model, wanted = ours.Ridge().fit(frame, y), ours.Ridge().fit(indicators.astype(float), y)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["a", "colour[red]", "colour[green]", "colour[blue]", "b"]
    np.testing.assert_allclose(model.predict(frame), wanted.predict(indicators.astype(float)), atol=1e-12)
    other_order = frame.assign(colour=frame["colour"].cat.set_categories(["blue", "green", "red"]))
    for table in (dd.from_pandas(frame, npartitions=3), dd.from_pandas(other_order, npartitions=3)):
        np.testing.assert_allclose(model.predict(table).compute(), model.predict(frame), atol=1e-12)
    for odd in ("yellow", None):
        unseen = frame.assign(colour=frame["colour"].astype(object).where(frame.index != 7, odd).astype("category"))
        with pytest.raises(ValueError, match=r"Column 'colour' has .*none of the categories that the model"):
            model.predict(dd.from_pandas(unseen, npartitions=3)).compute()
    unknown = dd.from_pandas(frame, npartitions=3)
    unknown["colour"] = unknown["colour"].cat.as_unknown()
    with pytest.raises(ValueError, match="categories of column 'colour' are not known before"):
        ours.Ridge().fit(unknown, unknown["a"])
