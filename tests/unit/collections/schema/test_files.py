"""What files tell of schemas is read from files of their own, from folders and from within ``.keras`` files."""

from __future__ import annotations

import json
import traceback
import zipfile
from pathlib import Path

import fsspec
import pytest

from dask_train.collections.schema.files import read_json
from dask_train.masking import MASK

TOLD = {"format": 1, "columns": []}
OPTIONS = {"key": "user-1234"}
URL = "memory://user:hidden-1234@there"


def test_it_is_found_wherever_it_is_saved(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(TOLD))
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as file:
        file.writestr("schema.json", json.dumps(TOLD))
    with zipfile.ZipFile(tmp_path / "plain.keras", "w") as file:
        file.writestr("config.json", "{}")
    for path in (tmp_path, tmp_path / "schema.json", f"file://{tmp_path}/model.keras"):
        assert read_json(path) == TOLD
    assert read_json(tmp_path / "plain.keras") is None


@pytest.mark.parametrize("content", ["", "[]", "{", "\xff"])
def test_content_that_is_no_schema_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "schema.json").write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"result.save"):
        read_json(tmp_path)


def test_a_file_that_is_not_there_or_not_readable_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^schema='.*none\.json' does not exist\. Pass the path"):
        read_json(tmp_path / "none.json")
    with pytest.raises(ValueError, match=rf"^model='{tmp_path}' is a folder without schema\.json\."):
        read_json(tmp_path, what="model")
    (tmp_path / "a.keras").write_text("no zip file")
    with pytest.raises(ValueError, match=r"The schema in .* can't be read: BadZipFile"):
        read_json(tmp_path / "a.keras")
    with pytest.raises(ValueError, match=r"The schema in .* can't be read: NotADirectoryError"):
        read_json(tmp_path / "a.keras" / "below")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (FileNotFoundError, "does not exist"),
        (PermissionError, r"can't be reached: .*refused the credentials"),
        (ValueError, "^user "),
    ],
)
def test_what_logs_in_to_a_store_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], message: str
) -> None:
    class Refusing:
        def isdir(self, place: str) -> bool:
            return False

        def cat_file(self, place: str) -> bytes:
            raise kind(f"user {OPTIONS['key']} at {place}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda place, **options: (Refusing(), place))
    with pytest.raises(ValueError, match=message) as told:
        read_json(URL, OPTIONS)
    shown = "".join(traceback.format_exception(told.value)) + repr(told.value)
    assert f"user {MASK} at memory://{MASK}@there" in shown
    assert [secret for secret in ("user-1234", "hidden-1234") if secret in shown] == []
