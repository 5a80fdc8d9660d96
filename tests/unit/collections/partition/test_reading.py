"""Values of columns come through unchanged, or are refused: never rounded, shifted or taken for others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from dask_train.collections.partition.form import open_form
from dask_train.collections.partition.plan import make_plan
from dask_train.collections.partition.reading import BLOCK_ROWS, read


def of(value, planned=None):
    """The one array of a partition, by the plan of that or another."""
    (one,) = make_plan("data", open_form("data", value if planned is None else planned))["reads"]
    return read("partition 1", one, [value])


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 7]),
    st.lists(st.sampled_from(["f4", "f8", "i4", "u1", "?"]), min_size=1, max_size=5),
)
def test_a_matrix_has_each_row_of_each_column_in_its_place(rows, dtypes):
    frame = pd.DataFrame({f"c{at}": (np.arange(rows) * (at + 3)).astype(dtype) for at, dtype in enumerate(dtypes)})
    found = of(frame)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, np.stack([frame[name] for name in frame], axis=1))


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (pd.Series([1, None], dtype="Int64"), np.array([1.0, np.nan])),
        (pd.Series([True, None], dtype="boolean"), np.array([1.0, np.nan])),
        (pd.Series(list("cba"), dtype=pd.CategoricalDtype(list("abc"))), np.array([2, 1, 0])),
        (pd.Series(["a", None], dtype="category"), np.array([0, -1])),
        (pd.Series([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
        (pd.Series(["a", "bc"]), np.array(["a", "bc"], object)),
    ],
)
def test_a_column_by_itself(series, values):
    found = of(series)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_an_array_of_cupy_is_fetched_from_its_device():
    def refuse(*_):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    rows = np.arange(6.0).reshape(3, 2)
    methods = {"__module__": "cupy", "__array__": refuse, "get": lambda _: rows, "dtype": rows.dtype, "ndim": 2}
    on_device = type("ndarray", (), methods)()
    one = {"piece": 0, "columns": None, "matrix": None}
    assert read("x", one, [on_device]) is rows


def test_any_array_becomes_contiguous_and_one_that_is_so_is_not_copied():
    values = np.arange(12.0).reshape(3, 4)
    assert of(values) is values
    for given_ in (np.asfortranarray(values), values[:, ::2], values[::-1]):
        assert of(given_).flags.c_contiguous
        np.testing.assert_array_equal(of(given_), given_)


@pytest.mark.parametrize(
    ("value", "planned"),
    [
        (pd.Series([1.5]), pd.Series([1])),  # would be cut off
        (pd.Series([2**40]), pd.Series([1], dtype="i4")),  # would overflow
        (pd.Series([1e300]), pd.Series([1], dtype="f4")),
        (pd.Series(["b"], dtype="category"), pd.Series(["a"], dtype="category")),  # other codes
        (pd.DataFrame({"b": [1.0]}), pd.DataFrame({"a": [1.0]})),
    ],
)
def test_a_partition_that_differs_from_the_plan_is_refused(value, planned):
    with pytest.raises(ValueError, match="partition 1"):
        of(value, planned)


def test_smaller_numbers_than_planned_are_widened():
    found = of(pd.Series([3], dtype="i2"), pd.Series([1.0]))
    assert (found.dtype, found.tolist()) == (np.dtype("f8"), [3.0])


def test_frames_and_arrays_do_not_stand_for_each_other():
    with pytest.raises(TypeError, match="where others have an array"):
        of(pd.Series([1.0]), np.zeros(1))
    with pytest.raises(TypeError, match="where others have a frame or a column"):
        of(np.zeros(1), pd.Series([1.0]))
    with pytest.raises(TypeError, match="whose mask would be lost"):
        of(np.ma.masked_array([1.0], [True]))
    with pytest.raises(ValueError, match="without an axis"):
        of(np.float64(1))
    with pytest.raises(ValueError, match=r"has a csr_matrix without an axis of rows. Make sparse ones dense"):
        of(csr_matrix(np.eye(2)), np.eye(2))


@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "int64[pyarrow]"])
def test_integers_that_floats_do_not_hold_are_refused(dtype):
    for value in (2**53, 2**60 + 1):
        with pytest.raises(ValueError, match="Column 'id' of partition 1 has integers beyond 53 bits"):
            of(pd.Series([1, value, None], dtype=dtype, name="id"))
    found = of(pd.Series([2**53 - 1, None], dtype=dtype))
    assert found[0] == 2**53 - 1
    assert np.isnan(found[1])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_a_planned_float_does_not_hold_are_refused(dtype):
    for planned in (pd.Series([0.5]), pd.Series([1, None], dtype="Int64")):
        with pytest.raises(ValueError, match="has integers beyond 53 bits"):
            of(pd.Series([1, 2**53 + 1], dtype=dtype), planned)
        assert of(pd.Series([1, 2**53 - 1], dtype=dtype), planned).tolist() == [1, 2**53 - 1]
    with pytest.raises(ValueError, match="Column 'id' of partition 1 has integers beyond 53 bits"):
        of(pd.DataFrame({"x": [0.5], "id": pd.array([2**53 + 1], dtype)}))
    ids = pd.DataFrame({"a": pd.array([2**53 + 1], dtype), "b": pd.array([1], dtype)})
    assert of(ids).tolist() == [[2**53 + 1, 1]]
