"""What a column becomes is told by its dtype alone, and what can't be numbers without a loss is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_train.collections.partition.kinds import column_of, digest, is_row_array

ABC = pd.CategoricalDtype(list("abc"))


@pytest.mark.parametrize(
    ("dtype", "how", "result"),
    [
        (np.dtype("f4"), "plain", "<f4"),
        (np.dtype("?"), "plain", "|b1"),
        (np.dtype("c8"), "plain", "<c8"),
        (pd.Int32Dtype(), "nullable", "<f8"),
        (pd.BooleanDtype(), "nullable", "<f8"),
        (pd.Float32Dtype(), "nullable", "<f4"),
        (pd.ArrowDtype(pa.int16()), "nullable", "<f8"),
        (pd.StringDtype(), "text", "|O"),
        (pd.ArrowDtype(pa.string()), "text", "|O"),
        (ABC, "codes", "<i8"),
        (np.dtype("O"), "objects", None),
        (pd.ArrowDtype(pa.list_(pa.float32())), "arrow", "<f4"),
        (pd.ArrowDtype(pa.list_(pa.list_(pa.int8(), 2))), "arrow", "|i1"),
    ],
)
def test_how_a_column_is_read(dtype, how, result):
    column = column_of("data", "x", dtype)
    assert (column["name"], column["how"], column["dtype"]) == ("x", how, result)
    assert is_row_array(column) == (how in {"arrow", "objects"})


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (np.dtype("M8[ns]"), "a date"),
        (pd.PeriodDtype("D"), "a date"),
        (pd.DatetimeTZDtype(tz="UTC"), "a date"),
        (np.dtype("m8[s]"), "a span of time"),
        (pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())), "Make categories of it"),
        (pd.SparseDtype("f8"), "no number"),
        (pd.ArrowDtype(pa.list_(pa.string())), "no number"),
    ],
)
def test_what_is_refused(dtype, told):
    with pytest.raises(TypeError, match=told):
        column_of("data", "x", dtype)


def test_codes_mean_the_same_only_where_categories_and_their_order_are_the_same():
    same = digest("data", "x", ABC.categories)
    assert same == digest("data", "x", pd.Index(["a", "b", "c"])) == column_of("data", "x", ABC)["categories"]
    for other in (["a", "c", "b"], ["a", "b"], ["a", "b", "c", "d"], [1, 2, 3]):
        assert digest("data", "x", pd.Index(other)) != same
    assert digest("data", "x", pd.Index([1, 2])) != digest("data", "x", pd.Index(["1", "2"]))
    with pytest.raises(ValueError, match=r"frame.categorize\(columns=\['x'\]\)"):
        digest("data", "x", pd.Index(["__UNKNOWN_CATEGORIES__"]))
