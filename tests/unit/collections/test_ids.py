"""Identifiers keep all of their digits, whatever of pandas' integers they are; a missing one is an error."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

from dask_train.collections.ids import exact_ids

LARGE = 2**60 + np.arange(6)
DTYPES = ["Int64", "int64[pyarrow]", "UInt64"]


def frame_of(dtype: str, *, torn: bool = False) -> pd.DataFrame:
    ids = pd.Series(LARGE).astype(dtype)
    if torn:
        ids = ids.where(np.arange(6) != 4)
    return pd.DataFrame({"a": np.arange(6.0), "id": ids, 7: ids, "number": pd.array([1, None] * 3, "Int64")})


def lazily(frame: Any) -> Any:
    return dd.from_pandas(frame, npartitions=2)


def parts(frame: Any) -> list[Any]:
    return [delayed(frame[:3]), delayed(frame[3:])]


def computed(given: Any) -> Any:
    (found,) = dask.compute(given, scheduler="sync")
    return pd.concat(found) if isinstance(found, list) else found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [lambda frame: frame, lazily, parts], ids=["pandas", "dask", "delayed"])
def test_they_are_exact_and_other_columns_stay(kind: Any, dtype: str) -> None:
    whole = frame_of(dtype)
    found = computed(exact_ids("data", kind(whole), ["id", 7]))
    for name in ("id", 7):
        assert isinstance(found[name].dtype, np.dtype)
        assert found[name].tolist() == LARGE.tolist()
    pd.testing.assert_frame_equal(found[["a", "number"]], whole[["a", "number"]])
    assert whole["id"].dtype == dtype, "the user's frame is as it was"
    with pytest.raises(ValueError, match="1 identifiers in column 'id' of data are missing"):
        computed(exact_ids("data", kind(frame_of(dtype, torn=True)), ["id"]))


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_so_is_a_column(kind: Any) -> None:
    found = exact_ids("data", kind(frame_of("Int64"))["id"])
    assert found.dtype == np.dtype("int64")
    assert computed(found).tolist() == LARGE.tolist()


def test_all_else_is_as_it_was() -> None:
    for other in (LARGE, None, "id", pd.Series(LARGE), pd.Series(["a"])):
        assert exact_ids("data", other) is other
