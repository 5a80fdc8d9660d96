"""Numbers of any width may stand for each other; nothing else may stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.plain import NumberColumn

COLUMN = NumberColumn.of("data", "c", np.dtype("i8"))


@pytest.mark.parametrize("dtype", ["u1", "f4", "bool", "boolean", "Float32", "Int64", "int64[pyarrow]"])
def test_a_column_of_numbers_stays_as_it_is(dtype: str) -> None:
    given = pd.Series([1], dtype=dtype)
    assert NumberColumn.has(given.dtype)
    assert COLUMN.conformed("x", given, coded=True) is given


@pytest.mark.parametrize("values", [["a"], pd.Categorical([1]), [1j], pd.to_datetime(["2024"]), [[1]]], ids=str)
def test_another_kind_is_refused(values: Any) -> None:
    with pytest.raises(
        TypeError, match=r"'c' of x is .*fitted with numbers \(int64\) in column 'c'.*astype\('int64'\)"
    ):
        COLUMN.conformed("x", pd.Series(values, name="c"), coded=True)


def test_complex_numbers_are_taken_where_they_were_fitted() -> None:
    given = pd.Series([1j])
    assert NumberColumn.of("data", "c", given.dtype).conformed("x", given, coded=True) is given
