"""Predictions and scores of Dask collections, and frames with categories; what is computed here is by threads."""

from __future__ import annotations

from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.metrics import mean_tweedie_deviance

from dask_train import linear_model as ours
from dask_train.linear_model import collections
from dask_train.linear_model.families import tweedie_deviance
from dask_train.linear_model.packed import OnPacked, packed

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


def test_holes_of_a_partition_are_refused_when_it_is_computed():
    model = ours.LogisticRegression().fit(X, BINARY)
    holes = X.copy()
    holes[200, 0] = np.nan
    lazy = model.predict(on_dask(holes))
    with pytest.raises(ValueError, match="X has values that are NaN or infinite"):
        lazy.compute()


@pytest.mark.parametrize("power", [-1.5, 0, 1, 1.5, 2, 3])
def test_deviances_are_those_of_scikit_learn(power):
    y, mean = np.array([0.5, 2.0, 3.0]), np.array([1.0, 2.5, 0.1])
    found = tweedie_deviance(y, mean, power).mean()
    assert found == pytest.approx(mean_tweedie_deviance(y, mean, power=power), rel=1e-12)


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


def test_a_sparse_partition_travels_as_a_row_of_bytes(ranks_of):
    rows = scipy.sparse.random_array((20, 3), density=0.5, rng=RANDOM, format="csr")
    parts = [[packed(rows, SIGNAL[:20])], [packed(rows[:0], SIGNAL[:0]), packed(rows)]]
    seen = ranks_of(parts, OnPacked(lambda ranks: [[part[0].shape for part in ranks.partitions()], ranks.world_rank]))
    assert seen == [[[(20, 3)], 0], [[(20, 3)], 1]], "none without rows, as of dense ones"


def test_columns_of_several_dtypes_are_numbers_like_those_in_memory():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0, "c": pd.array((X[:, 2] * 3).astype(int), dtype="Int64")})
    table = dd.from_pandas(frame, npartitions=3)
    found, wanted = ours.Ridge(workers=0).fit(table, SIGNAL), ours.Ridge().fit(frame.astype(float), SIGNAL)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.predict(table).compute(), wanted.predict(frame.astype(float)), rtol=1e-9)
    objects = on_dask(X).astype(object)
    np.testing.assert_allclose(ours.Ridge(workers=0).fit(objects, SIGNAL).coef_, ours.Ridge().fit(X, SIGNAL).coef_)


@pytest.mark.parametrize("odd", [X + 1j, X.astype("U20"), (X * 100).astype("M8[s]")], ids=["complex", "text", "times"])
def test_what_is_no_real_number_is_refused(odd):
    with pytest.raises(ValueError, match="and a linear model takes real numbers"):
        ours.Ridge().fit(on_dask(odd), SIGNAL)
    with pytest.raises(ValueError, match="and a linear model takes real numbers"):
        ours.Ridge().fit(X, SIGNAL).predict(on_dask(odd))


@pytest.mark.parametrize("column", [BINARY, pd.date_range("2020", periods=500)], ids=["text", "times"])
def test_a_column_that_is_no_number_is_named(column):
    table = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "odd": column}), npartitions=3)
    with pytest.raises(
        ValueError, match=r"Column 'odd' of X has the dtype .*, and a linear model takes numbers and cat"
    ):
        ours.Ridge().fit(table, SIGNAL)


def test_labels_and_weights_that_can_not_be():
    labels = BINARY.astype(object)
    labels[3] = None
    for y in (on_dask(labels), dd.from_pandas(pd.Series(labels), npartitions=2)):
        with pytest.raises(ValueError, match=r"labels of y can't be sorted .*, as where some are missing"):
            ours.LogisticRegression().fit(on_dask(X), y)
    with pytest.raises(ValueError, match=r"sample_weight has 2 dimensions; it is \(n,\)"):
        ours.Ridge().fit(on_dask(X), SIGNAL, on_dask(X[:, :1]))


def test_an_asynchronous_client_is_refused_in_words():
    with pytest.raises(ValueError, match="fit waits, and this client is asynchronous"):
        collections.check_waits(SimpleNamespace(asynchronous=True))
