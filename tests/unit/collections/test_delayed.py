"""A list of delayed results as a source."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
from dask import delayed

from dask_train.collections import check_data, partition

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})


def parts_of(make):
    return [delayed(make)(X[rows], Y[rows]) for rows in (slice(0, 3), slice(3, 4), slice(4, 10))]


def table(x, y):
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda x, y: x, (None, False)),
        (lambda x, y: (x, y), (None, True)),
        (lambda x, y: [x, y], (None, True)),
        (lambda x, y: {"x": x, "y": y}, (("x", "y"), False)),
        (table, (None, False)),
        (lambda x, y: (table(x, y)[["a", "b"]], pd.Series(y)), (None, True)),
        (lambda x, y: {"x": table(x, y)[["a", "b"]], "y": y}, (("x", "y"), False)),
    ],
)
def test_each_is_a_partition(computed, make, form):
    parts = computed(parts_of(make))
    assert [len(columns[0]) for columns in parts] == [3, 1, 6]
    np.testing.assert_array_equal(np.concatenate([columns[0][:, :2] for columns in parts]), X)
    if len(parts[0]) > 1:
        np.testing.assert_array_equal(np.concatenate([columns[1] for columns in parts]), Y)
    source = check_data("data", parts_of(make))
    assert (source.num_rows, source.nbytes, source.lengths, source.persisted_nbytes) == (None, None, None, 0)
    assert source.delayed_form(partition.part).compute(scheduler="synchronous") == form


def test_the_form_and_the_partitions_are_computed_together():
    calls = []

    def load():
        calls.append(1)
        return X, Y

    source = check_data("data", [delayed(load)()])
    form, parts = source.delayed_form(partition.part), source.delayed_parts(partition.part, len)
    assert dask.compute(form, *parts, scheduler="synchronous") == ((None, True), 2)
    assert len(calls) == 1
    shared = {key for key in dict(form.__dask_graph__()) if str(key).startswith("form-")}
    assert len(shared) == 1
    assert shared <= set(dict(parts[0].__dask_graph__())), "it is asked once"
    assert not shared & set(dict(check_data("data", [delayed(load)()]).delayed_form(partition.part).__dask_graph__()))


def test_what_is_not_contiguous_is_copied(computed):
    for value in (np.asfortranarray(X), X[::2], X[:, ::-1]):
        array = computed([delayed(value, traverse=False)])[0][0]
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, value)


def test_what_is_picked_is_the_form():
    for picked, is_tuple in (({"features": "x", "label": "y"}, True), ({"features": "x"}, False)):
        source = check_data("data", parts_of(lambda x, y: {"x": x, "y": y}), **picked)
        assert (source.names, source.is_tuple, source.delayed_form(partition.part)) == (None, is_tuple, None)


def test_other_kinds_know_their_form():
    assert check_data("data", (X, Y)).delayed_form(partition.part) is None


def test_picks_of_dicts_and_frames(computed):
    for make in (lambda x, y: {"z": y, "x": x, "y": y}, lambda x, y: table(x, y).rename(columns={"a": "x"})):
        parts = computed(parts_of(make), features="x", label="y")
        assert [len(columns) for columns in parts] == [2, 2, 2]
        np.testing.assert_array_equal(np.concatenate([columns[1] for columns in parts]), Y)


def test_a_dict_in_another_order(computed):
    parts = computed([delayed(dict)(x=X, y=Y), delayed(dict)(y=Y, x=X)])
    assert [[array.shape for array in columns] for columns in parts] == [[(10, 2), (10,)]] * 2


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([(X, Y), (X,)], ValueError, "partition 1 of data is a tuple of 1, and the first is a tuple of 2. Make all"),
        ([(X, Y), {"x": X, "y": Y}], ValueError, "is a dict of 'x', 'y', and the first is a tuple of 2"),
        (
            [{"x": X, "y": Y}, {"x": X, "z": Y}],
            ValueError,
            "is a dict of 'x', 'z', and the first is a dict of 'x', 'y'",
        ),
        ([X, (X,)], ValueError, "is a tuple of 1, and the first is one array or frame"),
        ([X, TABLE], TypeError, "partition 1 of data has a DataFrame, where others have an array"),
        ([TABLE, X], TypeError, "has a ndarray, where others have a frame"),
        ([TABLE, TABLE.drop(columns="b")], ValueError, "partition 1 of data has no column 'b'; it has 'a', 'y'"),
        ([(X, Y[:4])], ValueError, "partition 0 of data have 10, 4 rows; they have to be the same"),
        ([{}], ValueError, "partition 0 of data is empty"),
        ([None], ValueError, "has a NoneType without an axis"),
        ([3.0], ValueError, "has a float without an axis"),
        ([np.ma.masked_equal(Y, 3)], TypeError, "has a masked array"),
        ([np.array([None])], TypeError, "Row 0 of a ndarray of object of partition 0 of data is missing"),
    ],
)
def test_what_is_seen_only_in_the_partitions(computed, values, error, text):
    with pytest.raises(error, match=text):
        computed([delayed(value, traverse=False) for value in values], "data")


def test_names_are_seen_only_in_the_partitions(computed):
    with pytest.raises(ValueError, match=r"partition 0 of data has no column 'yy'. The nearest: 'y'"):
        computed([delayed(TABLE)], "data", label="yy")
    with pytest.raises(ValueError, match="name columns, and partition 0 of data is a ndarray, which has none"):
        computed([delayed(X)], "data", features="a")
    with pytest.raises(TypeError, match="is no name"):
        check_data("data", [delayed(X)], label=["a"])


def test_an_empty_partition_in_front_is_named(computed):
    frame = pd.DataFrame({"a": [1.0], "b": [2], "y": [0]})
    parts = [delayed(pd.DataFrame({"a": [], "b": [], "y": []}, dtype=object)), delayed(frame)]
    with pytest.raises(TypeError, match=r"lists or objects rather than numbers \(as an empty partition in front may\)"):
        computed(parts, "data", features=["a", "b"], label="y")
    assert computed([delayed(frame[:0]), delayed(frame)], "data", features=["a", "b"], label="y")
