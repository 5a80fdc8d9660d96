"""Columns in which each row is an array."""

from __future__ import annotations

import decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_train.collections.partition.kinds import column_of
from dask_train.collections.partition.reading import read

VALUES = np.arange(24, dtype="f4").reshape(4, 3, 2)
TENSOR = pa.FixedShapeTensorArray.from_numpy_ndarray


def arrow(array):
    return pd.Series(pd.arrays.ArrowExtensionArray(array), name="v")


def rows(series, planned=None):
    column = column_of("data", "v", (series if planned is None else planned).dtype)
    found = read("data", {"piece": 0, "columns": [column], "matrix": None}, [series])
    assert found.flags.c_contiguous
    assert not len(series) or column["dtype"] in (None, found.dtype.str), "the dtype was foretold"
    return found


def objects(values):
    return pd.Series(list(values), dtype=object, name="v")


@pytest.mark.parametrize(
    "series",
    [
        objects(VALUES),
        objects(np.asfortranarray(VALUES)),
        objects([value.T.copy().T for value in VALUES]),
        objects([objects(value).to_numpy() for value in VALUES]),
        arrow(pa.array(VALUES.tolist(), pa.list_(pa.list_(pa.float32())))),
        arrow(pa.array(VALUES.tolist(), pa.large_list(pa.list_(pa.float32(), 2)))),
        arrow(pa.array(VALUES.tolist(), pa.list_(pa.list_(pa.float32(), 2), 3))),
        arrow(pa.chunked_array([VALUES[:1].tolist(), VALUES[1:].tolist()], pa.list_(pa.list_(pa.float32())))),
        arrow(TENSOR(VALUES)),
        arrow(TENSOR(np.ascontiguousarray(VALUES.transpose(0, 2, 1)).transpose(0, 2, 1))),
        arrow(pa.chunked_array([TENSOR(VALUES[:1]), TENSOR(VALUES[1:])])),
    ],
)
def test_rows_of_one_shape(series):
    found = rows(series)
    assert found.dtype == "f4"
    np.testing.assert_array_equal(found, VALUES)
    np.testing.assert_array_equal(rows(series.iloc[1:3]), VALUES[1:3])
    assert rows(series.iloc[:0]).shape == (0,), "no rows, no row shape"


@pytest.mark.parametrize("dtype", ["u1", "i8", "f8", "f2", "?"])
def test_lists_keep_their_dtype(dtype):
    values = (np.arange(8) % 2).reshape(4, 2).astype(dtype)
    for series in (arrow(pa.array(list(values))), arrow(TENSOR(values)) if dtype != "?" else objects(values)):
        found = rows(series)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, values)


def test_scalars_and_lists_in_objects():
    np.testing.assert_array_equal(rows(objects([1, 2, 3])), [1, 2, 3])
    np.testing.assert_array_equal(rows(objects([[1.0, 2.0], [3.0, 4.0]])), [[1, 2], [3, 4]])


def test_nan_in_lists():
    np.testing.assert_array_equal(rows(arrow(pa.array([[1.0, None], [3.0, 4.0]]))), [[1, np.nan], [3, 4]])


def test_lists_without_values():
    assert rows(arrow(pa.array([[], []], pa.list_(pa.float32())))).shape == (2, 0)
    assert rows(arrow(pa.array([[], []], pa.list_(pa.list_(pa.float32()))))).shape[:2] == (2, 0)


@pytest.mark.parametrize(
    ("series", "error", "text"),
    [
        (
            objects([VALUES[0], VALUES[0][:2]]),
            ValueError,
            r"Rows 0 and 1 of column 'v' of data have shapes \(3, 2\) and",
        ),
        (objects([VALUES[0], VALUES[0].astype("f8")]), ValueError, "Rows 0 and 1 .* are of float32 and float64"),
        (objects([VALUES[0], None]), TypeError, "Row 1 of column 'v' of data is missing. Drop such rows"),
        (objects([VALUES[0], np.nan]), TypeError, "Row 1 .* is missing"),
        (objects([VALUES[0], 1.0]), ValueError, r"Rows 0 and 1 .* have shapes \(3, 2\) and \(\)"),
        (objects([b"text", 3]), TypeError, "Row 1 of column 'v' of data is 3, no text"),
        (objects([decimal.Decimal(1)]), TypeError, "is a Decimal, no array of numbers"),
        (objects([np.array(["a"])]), TypeError, "is a ndarray, no array of numbers"),
        (objects([[[1, 2], [3]]]), ValueError, "Row 0 .* is a list whose parts differ in shape"),
        (objects([objects([np.ones(2), np.ones(3)]).to_numpy()]), ValueError, "parts differ in shape"),
        (arrow(pa.array([[1.0], [2.0], [3.0, 4.0]])), ValueError, r"Rows 0 and 2 .* have shapes \(1,\) and \(2,\)"),
        (arrow(pa.array([[[1, 2]], [[1]]])), ValueError, r"Rows 0 and 1 .* have shapes \(1, 2\) and \(1, 1\)"),
        (
            arrow(pa.array([[[1], [2]], [[3], [4, 5]]])),
            ValueError,
            r"Rows 0 and 1 .* have shapes \(2, 1\) and \(2, 2\)",
        ),
        (arrow(pa.array([[1.0], None])), ValueError, "Row 1 of column 'v' of data is missing, or a value in it is"),
        (arrow(pa.array([[[1.0], [1.0]], [[2.0], None]])), ValueError, "Row 1 .* is missing, or a value in it is"),
        (arrow(pa.array([[1, 2], [3, None]])), ValueError, "Row 1 .* is missing, or a value in it is"),
        (arrow(pa.array([["a"]])), TypeError, "'v' of data is list.*string"),
    ],
)
def test_rows_that_differ(series, error, text):
    with pytest.raises(error, match=text):
        rows(series)


def test_a_missing_tensor():
    storage = pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2))
    array = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float64(), (2,)), storage)
    with pytest.raises(ValueError, match="Row 1 of column 'v' of data is missing"):
        rows(arrow(array))


def test_a_partition_that_is_no_list():
    planned = arrow(pa.array([[1.0]]))
    with pytest.raises(ValueError, match="Column 'v' of data is float64, and arrow of <f8 was expected"):
        rows(pd.Series([1.0]), planned)


def test_in_dask_frames(computed):
    table = pd.DataFrame({"v": arrow(TENSOR(VALUES)), "l": arrow(pa.array(VALUES[:, 0].tolist())), "y": np.arange(4)})
    frame = dd.from_pandas(table, npartitions=2)
    assert [columns[0].shape for columns in computed(frame, features="v", label="y")] == [(2, 3, 2)] * 2
    both = computed({"tensor": frame["v"], "list": frame["l"], "numbers": frame[["y"]]})
    assert [array.shape for array in both[1]] == [(2, 3, 2), (2, 2), (2, 1)]
