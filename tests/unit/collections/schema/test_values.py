"""Values of pandas are the same after JSON."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.values import index_from_json, index_to_json, value_from_json, value_to_json

INDEXES = [
    pd.Index(["a", "é", ""]),
    pd.Index(["a"], dtype=object),
    pd.Index(["a"], dtype="string[pyarrow]"),
    pd.Index([3, -1, 2**63 - 1]),
    pd.Index([2**63 + 1], dtype="uint64"),
    pd.Index([0.1, np.inf, -np.inf, 1e-300]),
    pd.Index(np.array([0.1, 0.2], "f4")),
    pd.Index([True, False]),
    pd.Index([pd.Timestamp("2024-01-01T00:00:00.000000001")]),
    pd.date_range("2024-03-31", periods=3, tz="Europe/Berlin", unit="us"),
    pd.to_timedelta([1, 2], unit="ns"),
    pd.interval_range(0, 2),
    pd.interval_range(0.5, 2.5, closed="left"),
    pd.interval_range(pd.Timestamp("2020", tz="UTC"), periods=2),
    pd.Index([2, "a", True, 0.5], dtype=object),
    pd.Index([datetime.date(2020, 1, 1), decimal.Decimal("1.10"), b"x\xff"], dtype=object),
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: str(index.dtype))
def test_an_index_is_the_same_after_json(index: pd.Index) -> None:
    found = index_from_json(json.loads(json.dumps(index_to_json(index), allow_nan=False)))
    pd.testing.assert_index_equal(found, index, exact=True, check_freq=False)
    assert [type(value) for value in found.tolist()] == [type(value) for value in index.tolist()]


@pytest.mark.parametrize(
    "name", ["a", 1, 1.5, True, None, ("a", 1), ("a", ("b", 2.5)), np.int64(3), datetime.date(2020, 1, 1)]
)
def test_a_name_is_the_same_after_json(name: Any) -> None:
    found = value_from_json(json.loads(json.dumps(value_to_json(name))))
    assert found == name
    assert isinstance(found, bool) == isinstance(name, bool)


@pytest.mark.parametrize("index", [pd.Index([{1}], dtype=object), pd.period_range("2024", periods=2, freq="M")])
def test_what_json_has_no_place_for_is_refused(index: pd.Index) -> None:
    with pytest.raises(TypeError, match=r"is a (set|Period), which a schema can't hold in JSON.*astype\(str\)"):
        index_to_json(index)
