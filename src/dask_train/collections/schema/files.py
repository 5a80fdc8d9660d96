"""Schemas in files, as JSON: by themselves, in a folder with a model, or within a ``.keras`` file.

:mod:`frame_schema` makes schemas of it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

from dask_train.masking import mask_error, masked
from dask_train.stores import reaching

# The name of the file with a schema, in a folder and within a ``.keras`` file, which is a zip file.
SCHEMA_FILE = "schema.json"

# The end of errors.
ADVICE = "Pass the path of what result.save or schema.save has written."


def read_json(
    path: str | os.PathLike[str], options: Mapping[str, Any] | None = None, *, what: str = "schema"
) -> dict[str, Any] | None:
    """Read the schema of a file or folder, as JSON.

    Parameters
    ----------
    path
        A JSON file; a folder that ``result.save`` has written; or a ``.keras`` file of it. Any that fsspec opens.
    options
        ``storage_options`` for its file system.
    what
        The name of the argument that has the path, for errors.

    Returns
    -------
    dict or None
        None of a ``.keras`` file that has none.

    Raises
    ------
    ValueError
        There is no such file, or it can't be read.
    """
    shown = masked(os.fspath(path))
    content, is_zip = _content(what, os.fspath(path), options)
    try:
        document = json_within(io.BytesIO(content)) if is_zip else json.loads(content)
    except (ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"The schema in {shown} can't be read: {type(error).__name__}: {error}. {ADVICE}") from error
    if not isinstance(document, dict | None):
        raise ValueError(f"{what}={shown!r} holds no schema. {ADVICE}")
    return document


def _content(what: str, text: str, options: Mapping[str, Any] | None) -> tuple[bytes, bool]:
    """Return the content of the file that has a schema, and whether it is a ``.keras`` file."""
    shown = masked(text)
    try:
        with reaching(what, text, options) as (fs, place):
            is_folder = fs.isdir(place)
            try:
                content: bytes = fs.cat_file(f"{place.rstrip('/')}/{SCHEMA_FILE}" if is_folder else place)
            except FileNotFoundError as error:
                mask_error(error, options)
                why = f"is a folder without {SCHEMA_FILE}" if is_folder else "does not exist"
                raise ValueError(f"{what}={shown!r} {why}. {ADVICE}") from error
    except OSError as error:  # of a local file; those of stores are in words by then
        raise ValueError(f"The schema in {shown} can't be read: {type(error).__name__}: {error}.") from error
    return content, text.endswith(".keras") and not is_folder


def json_within(file: Any) -> dict[str, Any] | None:
    """Read the schema within a ``.keras`` file; None if it has none."""
    with zipfile.ZipFile(file) as parts:
        if SCHEMA_FILE not in parts.namelist():
            return None
        document: dict[str, Any] = json.loads(parts.read(SCHEMA_FILE))
    return document
