"""Dask collections as data of a fit: frames of many dtypes, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train import linear_model as ours
from dask_train.linear_model import collections
from dask_train.linear_model.columns import columns_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(500, 4))
SIGNAL = X @ [1, -1, 0.5, 0]
BINARY = np.where(SIGNAL + RANDOM.logistic(size=500) > 0, "yes", "no")


def on_dask(array):
    return da.from_array(array, chunks=((170, 0, 30, 300), *array.shape[1:]))


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
    ways = r"frame\.astype\(\{'odd': pd\.CategoricalDtype\(values\)\}\).*frame\.categorize\(columns=\['odd'\]\)"
    with pytest.raises(ValueError, match=rf"Column 'odd' of X has the dtype .*, and a linear model takes .*{ways}"):
        ours.Ridge().fit(table, SIGNAL)


def test_labels_and_weights_that_can_not_be():
    labels = BINARY.astype(object)
    labels[3] = None
    for y in (on_dask(labels), dd.from_pandas(pd.Series(labels), npartitions=2)):
        with pytest.raises(ValueError, match=r"Row \d+ .* of partition \d of the data is missing"):
            ours.LogisticRegression(workers=0).fit(on_dask(X), y)
    with pytest.raises(ValueError, match=r"sample_weight has 2 dimensions; it is \(n,\)"):
        ours.Ridge().fit(on_dask(X), SIGNAL, on_dask(X[:, :1]))


def test_an_asynchronous_client_is_refused_in_words():
    with pytest.raises(ValueError, match="fit waits, and this client is asynchronous"):
        collections.check_waits(SimpleNamespace(asynchronous=True))


def test_rows_of_y_and_weights_are_cut_as_those_of_x():
    weights = da.ones(500, chunks=77)
    found = columns_of(on_dask(X).rechunk({1: 1}), pd.Series(SIGNAL), weights, workers=0)
    for column, wanted in zip(found, (X, SIGNAL, np.ones(500)), strict=True):
        np.testing.assert_array_equal(column, wanted)
    with pytest.raises(ValueError, match="rows differ: X 500, y 499"):
        columns_of(on_dask(X), SIGNAL[1:], None, workers=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"y": "label"}, r"y is 'label'; it is the values themselves, one a row, such as frame\['column'\]"),
        ({"sample_weight": 2.0}, "sample_weight is 2.0; it is the values themselves"),
        ({"y": SIGNAL[:10]}, "Numbers of rows differ: X 500, y 10. Pass as many of each"),
        ({"sample_weight": SIGNAL[:9]}, "Numbers of rows differ: X 500, y 500, sample_weight 9"),
        (
            {"X": on_dask(X)[:, 0]},
            r"X has the shape \(500,\); a matrix has two dimensions, a row each. Of one feature pass X\[:, None\]",
        ),
        ({"X": [on_dask(X), on_dask(X)]}, "X is a list of Dask collections.*Make one of it: dask.array.concatenate"),
        ({"X": on_dask(X)[:0], "y": SIGNAL[:0]}, "X has no rows, so there is nothing to fit or to score"),
    ],
    ids=["name", "one number", "rows", "weights", "vector", "list", "empty"],
)
def test_what_can_not_be_data_is_told_by_its_name(given, told):
    arguments = {"X": on_dask(X), "y": on_dask(SIGNAL), **given}
    with pytest.raises(ValueError, match=told):
        ours.Ridge(workers=0).fit(**arguments)


def test_text_in_a_frame_in_memory_is_named_as_that_of_a_collection_is():
    frame = pd.DataFrame({"a": X[:, 0], "answer": BINARY})
    with pytest.raises(ValueError, match=r"Column 'answer' of X .* with frame.astype\({'answer': 'category'}\)"):
        ours.Ridge().fit(frame, SIGNAL)
    made = ours.Ridge().fit(frame.astype({"answer": "category"}), SIGNAL)
    assert made.feature_names_in_.tolist() == ["a", "answer[no]", "answer[yes]"]
    numbers = ours.Ridge().fit(frame[["a"]].astype(object), SIGNAL)
    np.testing.assert_allclose(numbers.coef_, ours.Ridge().fit(frame[["a"]], SIGNAL).coef_)


def test_a_vector_is_no_data_to_predict():
    with pytest.raises(ValueError, match=r"X has the shape \(500,\); a matrix has two dimensions"):
        ours.Ridge().fit(X, SIGNAL).predict(on_dask(X)[:, 0])


MASKED = np.ma.masked_array(X, X > 1)


@pytest.mark.parametrize("spread", [on_dask, np.asanyarray], ids=["dask", "numpy"])
def test_masks_are_refused_by_each_method(spread):
    model = ours.LogisticRegression().fit(X, BINARY)
    masked, rows, labels = spread(MASKED), spread(X), spread(BINARY)
    for call in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(TypeError, match="X has a masked array, whose mask would be lost"):
            call(masked)
    for method in (ours.LogisticRegression(workers=0).fit, model.score):
        with pytest.raises(TypeError, match="X has a masked array"):
            method(masked, labels)
        with pytest.raises(TypeError, match="y has a masked array"):
            method(rows, spread(np.ma.masked_array(BINARY, BINARY == "yes")))
        with pytest.raises(TypeError, match="sample_weight has a masked array"):
            method(rows, labels, spread(MASKED[:, 0]))


def test_a_mask_that_only_a_block_shows_is_refused_there():
    model = ours.Ridge().fit(X, SIGNAL)
    hidden = on_dask(X).map_blocks(lambda rows: np.ma.masked_array(rows, rows > 1), meta=np.empty((0, 0)))
    with pytest.raises(TypeError, match="A block of X has a masked array"):
        model.predict(hidden).compute()
    targets = on_dask(SIGNAL).map_blocks(lambda y: np.ma.masked_array(y, y > 1), meta=np.empty(0))
    with pytest.raises(ValueError, match=r"partition \d of the data has a masked array"):
        model.score(on_dask(X), targets)


def test_truth_values_of_arrow_are_numbers_and_labels_as_those_of_numpy():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0})
    arrow = frame.astype({"b": "bool[pyarrow]"})
    wanted = ours.LogisticRegression().fit(frame.astype(float), SIGNAL > 0)
    labels = pd.Series(SIGNAL > 0).astype("bool[pyarrow]")
    for given, y in ((arrow, labels), (dd.from_pandas(arrow, npartitions=3), dd.from_pandas(labels, npartitions=3))):
        found = ours.LogisticRegression(workers=0).fit(given, y)
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9)
        assert found.score(given, y) == wanted.score(frame.astype(float), SIGNAL > 0)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_integers_beyond_53_bits_are_no_features_and_no_labels(dtype):
    large = dd.from_pandas(pd.DataFrame({"id": pd.Series(2**60 + np.arange(500)).astype(dtype)}), npartitions=3)
    for features, y in ((large, SIGNAL), (large, large["id"])):
        with pytest.raises(ValueError, match=r"Column 'id' of partition \d of the data has integers beyond 53 bits"):
            ours.Ridge(workers=0).fit(features, y)


def test_a_missing_label_is_no_wrong_prediction():
    model = ours.LogisticRegression().fit(X, BINARY)
    labels = np.where(X[:, 3] > 2, None, BINARY)
    with pytest.raises(ValueError, match=r"Row \d+ .* of partition \d of the data is missing"):
        model.score(on_dask(X), on_dask(labels))
