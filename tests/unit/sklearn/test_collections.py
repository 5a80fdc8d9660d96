"""Collections as estimators take them: rows that go together, labels, and what is refused."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator

from dask_train.shared_data.parts import PART
from dask_train.shared_data.published import as_source
from dask_train.sklearn import collections
from dask_train.sklearn.collections import (
    as_array,
    as_features,
    beside,
    check_features,
    classes_of,
    one_hot,
    rows_once,
    rows_together,
    targets,
)

PREDICTED = np.arange(7.0)
Y = PREDICTED % 3
WEIGHT = PREDICTED + 1
CHUNKS = (4, 0, 3)


def known(array, chunks=CHUNKS):
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def unknown(array, chunks=CHUNKS):
    """Of a frame nobody knows how many rows it has."""
    found = known(array, chunks)
    return found.map_blocks(np.array, dtype=array.dtype, chunks=((np.nan,) * len(chunks), *found.chunks[1:]))


def column(array):
    return dd.from_pandas(pd.DataFrame({"y": array}), npartitions=2)[["y"]]


WAYS = [
    lambda array: array,
    lambda array: array[:, None],
    lambda array: array.tolist(),
    known,
    lambda array: known(array, (7,)),
    unknown,
    lambda array: unknown(array, (3, 4)),
    column,
]


@pytest.mark.parametrize("predicted", [known, unknown])
@pytest.mark.parametrize("number", range(len(WAYS)))
def test_rows_go_together_however_they_are_passed(predicted, number):
    for weigh in (WAYS[number], known, unknown, np.asarray):
        found = beside(predicted(PREDICTED), WAYS[number](Y), weigh(WEIGHT))
        assert [each.ndim for each in found] == [1, 1, 1]
        one, other, weight = found
        assert float(((one - other) * weight).sum().compute()) == float(((PREDICTED - Y) * WEIGHT).sum())
    several = np.stack([PREDICTED, Y], axis=1)
    one, other = beside(predicted(several), unknown(several))
    assert (one == other).compute().all()


def test_rows_of_which_nobody_knows_how_many_there_are_are_counted_together():
    made = []
    part = dask.delayed(lambda: made.append(1) or PREDICTED, pure=False)()
    lazy = da.from_delayed(part, (np.nan,), PREDICTED.dtype)
    with dask.config.set(scheduler="sync"):
        found = beside(*(da.stack([lazy, by * lazy], 1, allow_unknown_chunksizes=True) for by in (1, 2)), WEIGHT)
        assert len(made) == 1
        assert [each.shape for each in found] == [(7, 2), (7, 2), (7,)]
        assert dask.compute(*found)[1].tolist() == np.stack([PREDICTED, 2 * PREDICTED], 1).tolist()


@pytest.mark.parametrize("predicted", [known, unknown])
@pytest.mark.parametrize(
    ("y", "weight", "told"),
    [
        (Y[:1], None, "There are 1 and 7 rows"),
        (known(Y[:6], (6,)), None, "There are 6 and 7 rows"),
        (Y, unknown(WEIGHT[:1], (1,)), "There are 1 and 7 rows"),
        (np.stack([Y] * 7, 1), None, r"y has rows of shape \(7,\), and one number each is wanted"),
        (Y, np.stack([WEIGHT] * 7, 1), r"sample_weight has rows of shape \(7,\), and one number each"),
        (np.zeros((7, 1, 1)), None, "y has 3 dimensions"),
    ],
)
def test_rows_are_never_broadcast(predicted, y, weight, told):
    with pytest.raises(ValueError, match=told):
        beside(predicted(PREDICTED), y, weight)
    with pytest.raises(ValueError, match=r"y has rows of shape \(\), and \(2,\) is wanted"):
        beside(predicted(np.zeros((7, 2))), Y)


def test_columns_of_numbers_with_gaps_are_floats():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": [0.5, 1, 2]})
    found = as_features(dd.from_pandas(frame, npartitions=2))
    np.testing.assert_array_equal(found.compute(), [[1, 0.5], [np.nan, 1], [3, 2]])
    assert targets(column(Y)).compute().tolist() == Y.tolist()
    assert targets(np.zeros((3, 2))).shape == (3, 2)


def test_sparse_and_complex_rows_are_refused():
    rows = np.eye(3)
    for given, told in (
        (scipy.sparse.csr_array(rows), r"X is sparse, .*X\.toarray\(\)"),
        (da.from_array(rows, chunks=2).map_blocks(scipy.sparse.csr_array), r"X has sparse partitions, .*map_blocks"),
    ):
        with pytest.raises(ValueError, match=told):
            as_array(given)
    with pytest.raises(ValueError, match="X has the dtype complex128, and a network takes real numbers"):
        as_features(da.from_array(rows + 1j, chunks=2))


class Plain(BaseEstimator):
    """Notes features."""


def test_features_have_the_names_and_number_of_those_of_fit():
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0], "b": [2.0]}), npartitions=1)
    estimator = Plain()
    check_features(estimator, frame, reset=True)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="should match those that were passed during fit"):
        check_features(estimator, frame[["b", "a"]], reset=False)
    with pytest.raises(ValueError, match="X has 1 dimensions"):
        check_features(Plain(), da.zeros(3), reset=True)
    check_features(estimator, da.zeros((4, 2)), reset=True)
    with pytest.raises(ValueError, match="X has 3 features, but Plain is expecting 2"):
        check_features(estimator, da.zeros((4, 3)), reset=False)


TRUTHS = [True, False, True, True, False, True, True]


@pytest.mark.parametrize("given", [np.asarray, known, unknown])
@pytest.mark.parametrize("labels", [["b", "longer", "a", "b", "b", "a", "a"], [3, 1, 3, 2, 2, 2, 2], TRUTHS])
def test_labels_of_classes_and_their_columns(given, labels):
    labels = np.array(labels)
    y = given(labels)
    classes = classes_of(y)
    assert classes.tolist() == sorted(set(labels.tolist()))
    found = one_hot(y, classes)
    assert found.shape[1] == len(classes)
    (computed,) = dask.compute(found)
    assert classes[computed.argmax(axis=1)].tolist() == labels.tolist()
    assert (computed.sum(axis=1) == 1).all()


@pytest.mark.parametrize("given", [np.asarray, known])
@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.array([None, "a", "b", "a", "b", "a", "b"], object), "can't be sorted"),
        (np.arange(7) / 2, "Unknown label type: continuous"),
        (np.array([0, 1, np.nan, 0, 1, 0, 1]), "NaN"),
        (np.zeros((7, 2)), r"y has shape \(7, 2\); a classifier takes a label a row"),
    ],
)
def test_what_can_not_be_labels(given, labels, told):
    with pytest.raises(ValueError, match=told):
        classes_of(given(labels))


def test_labels_that_are_others_when_they_are_computed_again_are_no_class():
    y = known(np.array(["a", "b", "z", "a", "0", "b", "a"]))
    with pytest.raises(ValueError, match="y has other labels now than when its classes were found"):
        one_hot(y, np.array(["a", "b"])).compute(scheduler="synchronous")


@pytest.mark.parametrize("npartitions", [None, 2])
def test_text_beside_numbers_is_named(npartitions):
    frame = pd.DataFrame({"a": Y, "colour": ["red"] * len(Y)})
    frame = frame if npartitions is None else dd.from_pandas(frame, npartitions=npartitions)
    with pytest.raises(ValueError, match=r"Column 'colour' of X has the dtype .* beside columns of numbers"):
        as_array(frame)
    assert as_array(frame[["colour"]]).shape[1] == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_frames_that_were_cut_from_one_are_computed_once_as_arrays(weighted):
    made = []

    def partition(number):
        made.append(number)
        return pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "y": [number, 0], "w": 1.0})

    meta = pd.DataFrame({"a": [0.0], "b": [0], "y": [0], "w": [0.0]})
    frame = dd.from_map(partition, range(3), meta=meta)
    given = (frame[["a", "b"]], frame["y"], frame["w"] if weighted else None)
    with dask.config.set(scheduler="sync"):
        made.clear()
        arrays = [each for each in rows_together(*given) if each is not None]
        assert made == []
        found = dask.compute(*arrays)
        assert sorted(made) == [0, 1, 2]
        made.clear()
        dask.compute(*as_source("the data", (arrays[0], arrays[1][:, None])).delayed_parts(PART, list))
        assert sorted(made) == [0, 1, 2]
    np.testing.assert_array_equal(found[0], [[1, 3], [2, 4]] * 3)
    assert found[1].tolist() == [0, 0, 1, 0, 2, 0]
    assert len(found) == 2 + weighted


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("weight", [None, np.ones(7)])
def test_frames_that_were_filtered_differently_are_never_paired_by_position(weight, objects):
    frame = pd.DataFrame({"a": np.arange(8.0), "y": np.arange(8.0)})
    frame.loc[3, "a"], frame.loc[5, "y"] = np.nan, np.nan
    if objects:
        frame["y"] = [None if np.isnan(each) else np.ones(2) for each in frame["y"]]
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
        lazy = dd.from_pandas(frame, npartitions=1)
        x, y, kept = rows_together(lazy[["a"]].dropna(), lazy["y"].dropna(), weight)
        assert kept is weight
        with pytest.raises(ValueError, match=r"7 and 7 rows with different indexes"):
            dask.compute(x, y)
        x, y, _ = rows_together(lazy.dropna()[["a"]], lazy.dropna()["y"], weight)
        assert len(dask.compute(x, y)[0]) == 6


def test_what_was_not_cut_from_one_frame_stays_as_it_is():
    x, y = da.zeros((4, 2)), np.zeros(4)
    assert rows_together(x, y) == (x, y, None)


@pytest.mark.parametrize("given", [known, unknown])
@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (np.array(["b", "longer", "a", "b", "b", "a", "a"]), "U"),
        (np.array(["b", "longer", "a", "b", "b", "a", "a"], object), "O"),
        (np.array([3, 1, 3, 2, 2, 2, 2], object), "i"),
        (np.array(TRUTHS, object), "b"),
        (np.array([0.5, 1, 3, 2, 2, 2, 2], object), "f"),
    ],
)
def test_rows_that_are_computed_once_are_those_that_were_given(given, labels, stored):
    x, y, weight = rows_once([given(PREDICTED[:, None]), given(labels), given(WEIGHT)], None, 0)
    np.testing.assert_array_equal(x, PREDICTED[:, None])
    np.testing.assert_array_equal(y, labels)
    np.testing.assert_array_equal(weight, WEIGHT)
    assert y.dtype.kind == stored


def test_labels_of_partitions_that_are_as_wide_as_dask_says_are_alike(monkeypatch):
    monkeypatch.setattr(collections, "computed_here", lambda columns: columns)
    parts = [np.array(["a"]), np.array(["longer"])]
    y = da.concatenate([da.from_delayed(dask.delayed(part), (1,), "U6") for part in parts])
    _, found = rows_once([da.zeros((2, 1), chunks=1), y], None, 0)
    assert [block.compute(scheduler="synchronous").dtype.str for block in found.blocks] == ["<U6", "<U6"]
    assert found.compute(scheduler="synchronous").tolist() == ["a", "longer"]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.array([1, "a", 3, 2, 2, 2, 2], object), "Row 0 .* is 1, no text"),
        (np.array([1, None, 3, 2, 2, 2, 2], object), "Row 0 .* is 1, no text"),
        (np.zeros((7, 2)), r"y has shape \(7, 2\); a classifier takes a label a row"),
    ],
)
def test_labels_that_can_not_be_stored_are_refused(labels, told):
    with pytest.raises(ValueError, match=told):
        rows_once([known(PREDICTED[:, None]), known(labels)], None, 0)
