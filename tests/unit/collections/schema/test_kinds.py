"""Which kind a column is of, and that it is the same after JSON."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from dask_train.collections.schema.kinds import KINDS, column_for, column_from_json

COLUMNS: dict[str, Any] = {
    "number": [1],
    "text": ["a"],
    "category": pd.Categorical(["a"]),
    "other": [[1], [2]],
}


def test_there_is_a_column_of_each_kind() -> None:
    assert {kind.kind for kind in KINDS} == set(COLUMNS)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_is_of_a_kind_and_the_same_after_json(kind: str) -> None:
    column = column_for("data", "c", pd.Series(COLUMNS[kind]).dtype)
    assert column.kind == kind
    assert column_from_json(json.loads(json.dumps(column.to_json()))) == column


def test_dates_are_of_another_kind() -> None:
    assert column_for("data", "c", pd.to_datetime(["2024"]).dtype).kind == "other"


def test_a_kind_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'c' of kind 'vocabulary', and this version .*upgrade dask-train"):
        column_from_json({"name": "c", "kind": "vocabulary"})
