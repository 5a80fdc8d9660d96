"""Schemas are read from files of their own, from folders and from within ``.keras`` files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from dask_train.collections.schema.files import read_schema, schema_from, schema_to_json
from dask_train.collections.schema.frame_schema import FrameSchema

SCHEMA = FrameSchema.of(pd.DataFrame({"kind": pd.Categorical(["u", "v"])}))


def test_a_schema_is_found_wherever_it_is_saved(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as file:
        file.writestr("schema.json", json.dumps(schema_to_json(SCHEMA)))
    with zipfile.ZipFile(tmp_path / "plain.keras", "w") as file:
        file.writestr("config.json", "{}")
    for path in (tmp_path, tmp_path / "schema.json", f"file://{tmp_path}/model.keras"):
        assert read_schema(path) == SCHEMA
    assert read_schema(tmp_path / "plain.keras") is None
    assert schema_from(schema_to_json(None)) is None


def test_a_schema_is_saved_by_url_with_its_options(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/deeper/schema.json"
    SCHEMA.save(url, storage_options={"auto_mkdir": True})
    assert read_schema(url) == SCHEMA
    with pytest.raises(ValueError, match="storage_options are for an object store, and path is the local path"):
        SCHEMA.save(tmp_path / "schema.json", storage_options={"key": "hidden"})


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_what_is_no_schema_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "schema.json").write_text(content)
    with pytest.raises(ValueError, match=r"result.save"):
        read_schema(tmp_path)
    with pytest.raises(ValueError, match=r"The schema in .* can't be read: FileNotFoundError"):
        read_schema(tmp_path / "none.json")
    (tmp_path / "a.keras").write_text("no zip file")
    with pytest.raises(ValueError, match="can't be read: BadZipFile"):
        read_schema(tmp_path / "a.keras")
