"""A missing target or weight is an error, of whatever type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.missing import as_array, check_none_missing, with_nan_text


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, np.nan]),
        np.array([1.0, np.inf]),
        np.array(["a", None], object),
        np.array([1.0, float("nan")], object),
        np.array([1, pd.NA], object),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1, None], dtype="int64[pyarrow]"),
        pd.Series([True, None], dtype="bool[pyarrow]"),
        pd.Series([1.0, np.inf]),
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="category"),
    ],
    ids=str,
)
def test_one_of_two_is_missing(values: Any) -> None:
    with pytest.raises(ValueError, match="1 targets are missing or infinite, so there is no score"):
        check_none_missing("targets", values)
    check_none_missing("targets", values[:1])


def test_integers_of_pandas_are_exact_as_arrays() -> None:
    for dtype in ("Int64", "int64[pyarrow]"):
        found = as_array(pd.Series([2**60 + 1]).astype(dtype))
        assert (found.dtype, found.tolist()) == (np.dtype("int64"), [2**60 + 1])
    assert as_array(pd.Series(["a"], dtype="category")).tolist() == ["a"]


def test_missing_text_is_nan_for_encoders_of_scikit_learn() -> None:
    frame = pd.DataFrame({"a": pd.Series(["u", pd.NA], dtype="string"), "b": pd.Series(["u", "v"], dtype="string")})
    found = with_nan_text(frame.assign(n=[1, 2]))
    assert isinstance(found["a"][1], float)
    assert repr(found.dtypes["a"]) == repr(found.dtypes["b"]), "whether some is missing or not"
    assert str(found.dtypes["n"]) == "int64"
    assert frame["a"][1] is pd.NA, "the frame itself is as it was"
    assert isinstance(with_nan_text(frame["a"])[1], float)
    numbers = pd.DataFrame({"n": [1, 2]})
    assert with_nan_text(numbers) is numbers
