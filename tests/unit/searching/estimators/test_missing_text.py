"""Missing text of features comes back as what it was, whatever else the column holds."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.data.columns import Columns, SourceColumn
from dask_train.data.text import packed, unpacked
from dask_train.searching.estimators.missing_text import marked
from dask_train.searching.estimators.rows import FoldRows


def there_and_back(column):
    """A column as estimators get it from shared memory."""
    values = column.to_numpy(object)
    image = packed(values)
    made = unpacked(image, np.arange(len(values)), ())
    columns, _ = Columns.of({"a": made})
    return FoldRows.of(columns.with_origins({0: (SourceColumn(name="a", dtype=DTYPE),)}), [made]).X["a"]


DTYPE = np.dtype(object)


def test_kinds_of_missing_values_stay_apart_from_each_other_and_from_text():
    values = ["u", None, np.nan, pd.NA, "None", b"bytes", ""]
    found = there_and_back(marked("data", pd.Series(values, dtype=object, name="a")))
    assert found.dtype == object
    assert found.tolist()[0:2] == ["u", None]
    assert isinstance(found[2], float)
    assert found[3] is pd.NA
    assert found.tolist()[4:] == values[4:]


@pytest.mark.parametrize("dtype", ["string[python]", "string[pyarrow]", "str"])
def test_encoders_get_nan_of_each_type_of_text(dtype, monkeypatch):
    column = pd.Series(["u", None, "v"], name="a").astype(dtype)
    column = column.mask(column == "None")  # which pandas 2 makes of None
    monkeypatch.setitem(globals(), "DTYPE", column.dtype)
    found = there_and_back(marked("data", column))
    assert [isinstance(value, float) for value in found] == [False, True, False]
    whole = column.dropna()
    assert repr(there_and_back(marked("data", whole)).dtype) == repr(found.dtype), "whether some is missing or not"


def test_of_dask_partitions_are_marked_where_they_are_computed():
    column = pd.Series(["u", None, "v", "w"], dtype=object, name="a")
    lazy = dd.from_pandas(column, npartitions=2)
    assert marked("data", lazy).compute(scheduler="sync").map(type).tolist() == [str, bytes, str, str]


def test_numbers_and_arrays_are_left_alone():
    for column in (pd.Series([1.0, np.nan]), pd.Series([np.ones(2), None]), pd.Series([None, None], dtype="category")):
        assert marked("data", column) is column or marked("data", column).equals(column)
