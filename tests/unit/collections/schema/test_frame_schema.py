"""A schema describes a frame, and is the same after JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.frame_schema import FrameSchema, names_in, only_categories, structure_of

FRAME = pd.DataFrame({"a": np.arange(2.0), "kind": pd.Categorical(["u", "v"]), 7: [1, 2], "t": ["x", "y"], "y": [1, 0]})
STRUCTURES: list[Any] = [
    None,
    "kind",
    7,
    ["kind", 7],
    {"one": "kind", "rest": None},
    {"one": ["a", 7], "two": {"b": "t"}},
]


@pytest.mark.parametrize("features", STRUCTURES, ids=repr)
def test_it_is_the_same_after_json(features: Any, tmp_path: Path) -> None:
    schema = FrameSchema.of(FRAME, features=features, label="y")
    assert FrameSchema.of(dd.from_pandas(FRAME, npartitions=1), features=features, label=["y"]) == schema
    found = FrameSchema.from_json(json.loads(json.dumps(schema.to_json())))
    assert found == schema
    assert found.digest == schema.digest
    schema.save(tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text()) == schema.to_json()


def test_features_that_are_not_named_are_all_but_the_label_in_order() -> None:
    schema = FrameSchema.of(FRAME, label="y")
    assert schema.features == ["a", "kind", 7, "t"]
    assert [column.kind for column in schema.columns] == ["number", "category", "number", "text"]
    assert FrameSchema.of(FRAME, {"one": "kind", "rest": None}).features == {"one": "kind", "rest": ["a", 7, "t", "y"]}
    assert schema.categories == {"kind": ["u", "v"]}
    assert [column.name for column in schema.targets] == ["y"]
    assert "'kind'" in repr(schema)
    assert "category" in schema._repr_html_()


def test_digests_tell_schemas_apart() -> None:
    other = FRAME.assign(kind=FRAME["kind"].cat.reorder_categories(["v", "u"]))
    period = FRAME.assign(kind=pd.Categorical(pd.period_range("2024", periods=2, freq="M")))
    digests = {
        FrameSchema.of(each, features).digest for each in (FRAME, other, period) for features in (None, ["kind", "a"])
    }
    assert len(digests) == 6


def test_only_categories_are_kept_by_further_training() -> None:
    kept = only_categories(FrameSchema.of(FRAME, label="y"))
    assert [column.name for column in (*kept.columns, *kept.targets)] == ["kind"]
    assert kept.features is None


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(TypeError, match=r"frame is a ndarray. Pass a DataFrame"):
        FrameSchema.of(np.ones(3))
    with pytest.raises(ValueError, match="frame has no column 'z'"):
        FrameSchema.of(FRAME, features=["z"])
    with pytest.raises(ValueError, match="There is no schema in that file"):
        FrameSchema.from_json({})
    with pytest.raises(ValueError, match=r"has format 99, and this version .* Upgrade"):
        FrameSchema.from_json({"format": 99, "columns": []})


def test_names_and_structures() -> None:
    assert list(names_in({"a": "x", "b": ["y", 3], "c": None})) == ["x", "y", 3]
    assert structure_of(FRAME[["kind", "a"]]) == ["kind", "a"]
    assert structure_of(FRAME["kind"]) == "kind"
    assert structure_of(np.ones(3)) is None
