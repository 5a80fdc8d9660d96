"""Models in ``.keras`` files, read where they are used, from any place that fsspec opens."""

from __future__ import annotations

import hashlib
import io
import pickle
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_train.stores import reaching


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A file with a model, for each process to read.

    Attributes
    ----------
    path
        A path or URL.
    options
        ``storage_options`` for its file system; not in the ``repr``.
    """

    path: str
    options: Mapping[str, Any] | None = field(default=None, repr=False)


def read_file(file: ModelFile, *, compiled: bool) -> tuple[Any, str]:
    """Return the model, compiled where that is needed, and a digest of the file.

    Raises
    ------
    ValueError
        It can't be read, or is no such file.
    """
    import keras

    path = file.path
    try:
        with reaching("model", path, file.options) as (fs, place):
            data = fs.cat_file(place)
    except OSError as error:
        raise ValueError(f"Model file {path} can't be read: {error}.") from error
    _check_whole(path, data)
    with tempfile.TemporaryDirectory(prefix="dask-train-") as folder:
        local = Path(folder) / "model.keras"
        try:
            local.write_bytes(data)
        except OSError as error:
            raise ValueError(
                f"Model file {path} can't be put into {folder}, from where Keras opens it: {error.strerror or error}. "
                "Make room there, or set TMPDIR to a folder that has some."
            ) from error
        try:
            model = keras.saving.load_model(local, compile=compiled)
        except Exception as error:
            message = str(error).replace(str(local), path)
            raise ValueError(f"{path} is no model that Keras opens: {type(error).__name__}: {message}") from error
    return model, hashlib.sha256(data).hexdigest()


def _check_whole(path: str, data: bytes) -> None:
    """Check that a model file is a whole zip file, whose end tells what is in it, with a checksum of each part."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            damaged = parts.testzip()
    except (zipfile.BadZipFile, EOFError, ValueError, zlib.error) as error:
        raise ValueError(
            f"Model file {path} ({len(data)} bytes) is cut off, or no file that model.save('....keras') has written: "
            f"{error}. Save or copy it again."
        ) from error
    if damaged is not None:
        raise ValueError(f"Model file {path} ({len(data)} bytes) is damaged at {damaged!r}. Save or copy it again.")


def header_of(file: ModelFile, digest: str, *, compiled: bool) -> bytes:
    """Return what :func:`open_file` needs."""
    return pickle.dumps({"file": file, "digest": digest, "compiled": compiled})


def open_file(header: bytes) -> Any:
    """Return the model, once it is seen that the file is the one that the client has seen.

    Raises
    ------
    ValueError
        It is another, or can't be read here.
    """
    expected = pickle.loads(header)  # noqa: S301 - sent by the client, as all Dask tasks are
    model, digest = read_file(expected["file"], compiled=expected["compiled"])
    if digest != expected["digest"]:
        path = expected["file"].path
        raise ValueError(
            f"Model file {path} has changed since the prediction was asked for, or is another file on this "
            "host. Predict again, or put the file where all Dask workers see the same."
        )
    return model
