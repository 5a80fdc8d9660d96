"""A schema describes a frame, and is the same after JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.frame_schema import (
    FrameSchema,
    names_in,
    only_categories,
    schema_from,
    schema_to_json,
    structure_of,
)

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
    for place in (tmp_path / "schema.json", str(tmp_path), f"file://{tmp_path}/schema.json"):
        assert FrameSchema.load(place) == schema
    assert schema_from(schema_to_json(schema)) == schema
    assert schema_from(schema_to_json(None)) is None


def test_it_is_saved_and_loaded_by_url_with_its_options(tmp_path: Path) -> None:
    schema, url = FrameSchema.of(FRAME), f"file://{tmp_path}/deeper/schema.json"
    schema.save(url, storage_options={"auto_mkdir": True})
    assert FrameSchema.load(url, storage_options={"auto_mkdir": True}) == schema
    for call in (schema.save, FrameSchema.load):
        with pytest.raises(ValueError, match=r"storage_options are for an object store, and path is the local path"):
            call(tmp_path / "schema.json", storage_options={"key": "hidden"})
        with pytest.raises(TypeError, match="storage_options is a str"):
            call(url, storage_options="hidden")


def test_options_go_to_the_file_system_that_it_is_loaded_from(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **options: (given.append(options), (system, "/it"))[1])
    FrameSchema.of(FRAME).save("s3://bucket/it")
    assert FrameSchema.load("s3://bucket/it", storage_options={"key": "user-1234"}) == FrameSchema.of(FRAME)
    assert given == [{}, {"key": "user-1234"}]
    system.rm_file("/it")


def test_what_can_not_be_loaded_is_told(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    with pytest.raises(ValueError, match=r"^path='.*it\.json' does not exist\. Pass the path of what result\.save"):
        FrameSchema.load(path)
    with pytest.raises(ValueError, match=rf"^path='{tmp_path}' is a folder without schema\.json\."):
        FrameSchema.load(tmp_path)
    for no_schema in ("{}", "[]", FRAME.to_json(orient="split"), '{"format": "csv", "columns": []}'):
        path.write_text(no_schema)
        with pytest.raises(ValueError, match=r"^path='.*it\.json' holds no schema\. Pass"):
            FrameSchema.load(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"^The schema in .*it\.json can't be read: JSONDecodeError: .* Pass the path"):
        FrameSchema.load(path)
    path.write_text(json.dumps(schema_to_json(None)))
    with pytest.raises(ValueError, match=r"^path='.*it\.json' is of a model that was saved without a schema\. Pass"):
        FrameSchema.load(path)
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match=r"has format 99, and this version .* Upgrade"):
        FrameSchema.load(path)


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
