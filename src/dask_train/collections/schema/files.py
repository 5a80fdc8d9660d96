"""Schemas in files: by themselves, in a folder beside a model, or within a ``.keras`` file."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

from dask_train.collections.schema.frame_schema import FORMAT, FrameSchema
from dask_train.stores import reaching

# The name of the file with a schema, in a folder and within a ``.keras`` file, which is a zip file.
SCHEMA_FILE = "schema.json"


def schema_to_json(schema: FrameSchema | None) -> dict[str, Any]:
    """Return what a file tells of a schema, also where there is none.

    Raises
    ------
    TypeError
        A category is of a type that JSON has no place for.
    """
    return {"format": FORMAT, "columns": None} if schema is None else schema.to_json()


def schema_from(found: dict[str, Any] | None) -> FrameSchema | None:
    """Return the schema that :func:`schema_to_json` has told of; None where there is none."""
    return None if found is None or found.get("columns", ()) is None else FrameSchema.from_json(found)


def read_schema(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> FrameSchema | None:
    """Read the schema of a file or folder.

    Parameters
    ----------
    path
        A JSON file; a folder that ``result.save`` has written; or a ``.keras`` file of it. Any that fsspec opens.
    options
        ``storage_options`` for its file system.

    Returns
    -------
    FrameSchema or None
        None of a model that was saved without one.

    Raises
    ------
    ValueError
        There is none, or it can't be read.
    """
    return schema_from(read_json(path, options))


def read_json(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Read what a file or folder tells of a schema; None of a ``.keras`` file that has none.

    Raises
    ------
    ValueError
        It can't be read.
    """
    text = os.fspath(path)
    try:
        with reaching("schema", text, options) as (fs, place):
            is_folder = fs.isdir(place)
            content = fs.cat_file(f"{place.rstrip('/')}/{SCHEMA_FILE}" if is_folder else place)
        if text.endswith(".keras") and not is_folder:
            return json_within(io.BytesIO(content))
        found = json.loads(content)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"The schema in {text} can't be read: {type(error).__name__}: {error}. Pass result.schema, the path of a "
            "file that schema.save has written, or of what result.save has."
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{text} holds no schema. Pass the path of what result.save or schema.save has written.")
    return found


def json_within(file: Any) -> dict[str, Any] | None:
    """Read what a ``.keras`` file tells of its schema; None where it does not."""
    with zipfile.ZipFile(file) as parts:
        if SCHEMA_FILE not in parts.namelist():
            return None
        found: dict[str, Any] = json.loads(parts.read(SCHEMA_FILE))
    return found
