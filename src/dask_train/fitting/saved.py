"""A trained model as files: as a log keeps it, and as ``result.save`` writes it with its schema."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.collections.schema.files import SCHEMA_FILE
from dask_train.collections.schema.frame_schema import FrameSchema, schema_to_json
from dask_train.fitting.kinds import KINDS, is_keras_model, kind_of
from dask_train.stores import checked_options, reaching


def saved(model: Any, folder: Path) -> Path:
    """Write a model as a log keeps it: the ``state_dict`` of a module of torch, others as :func:`save_model` does.

    Returns
    -------
    pathlib.Path
        The file in the folder.
    """
    if kind_of(model, KINDS) == "torch.nn.Module":
        import torch

        path = folder / "state_dict.pt"
        torch.save(model.state_dict(), path)
        return path
    return _written(model, folder)[0]


def save_model(
    model: Any,
    schema: FrameSchema | None,
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a model in its framework's own format, with its schema.

    Parameters
    ----------
    model
        Of any kind that ``fit`` and ``search`` train.
    schema
        What it knows of frames; None of a model of arrays.
    path
        A folder, or, of a Keras model, a file that ends with ``.keras``. Any that fsspec opens.
    storage_options
        For its file system.

    Raises
    ------
    TypeError
        A category is of a type that JSON can't represent.
    ValueError
        The place is taken by other files, is not for such a model, or can't be written to.
    """
    target = os.fspath(path)
    schema_json = schema_to_json(schema)  # before anything is written
    options = checked_options(storage_options, path=target)
    is_file = target.endswith(".keras")
    with reaching("path", target, options) as (fs, place):
        before = None if is_file else _before(fs, place, target)
    with tempfile.TemporaryDirectory(prefix="dask-train-") as local:
        if is_file:
            file = _keras_file(model, schema_json, Path(local), target)
            with reaching("path", target, options):
                _make_parent(fs, place)
                fs.put_file(str(file), place)
            return
        file, kind = _written(model, Path(local))
        schema_json["model"] = {**kind, "file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        with reaching("path", target, options):
            fs.makedirs(place, exist_ok=True)
            fs.put_file(str(file), f"{place}/{file.name}")
            fs.pipe_file(f"{place}/{SCHEMA_FILE}", json.dumps(schema_json, indent=1).encode())
            if before not in (None, file.name) and fs.exists(f"{place}/{before}"):
                fs.rm_file(f"{place}/{before}")


def _make_parent(fs: Any, place: str) -> None:
    parent = place.rpartition("/")[0]
    if parent:
        fs.makedirs(parent, exist_ok=True)


def _keras_file(model: Any, schema_json: dict[str, Any], folder: Path, target: str) -> Path:
    """Return a ``.keras`` file, which is a zip file, with one more part: Keras reads those that it knows."""
    if not is_keras_model(model):
        raise ValueError(
            f"{target!r} ends with .keras, and the model is a {type(model).__name__}. Pass the path of a folder."
        )
    file = folder / "model.keras"
    model.save(file)
    with zipfile.ZipFile(file, "a") as parts:
        parts.writestr(SCHEMA_FILE, json.dumps(schema_json, indent=1))
    return file


def _before(fs: Any, place: str, target: str) -> str | None:
    """Return the name of the model's file that an earlier call has written there.

    Raises
    ------
    ValueError
        Others have written something there.
    """
    if not fs.exists(place):
        return None
    names = (
        [] if fs.isfile(place) else [str(name).rstrip("/").rpartition("/")[2] for name in fs.ls(place, detail=False)]
    )
    if not fs.isfile(place) and not names:
        return None
    if SCHEMA_FILE not in names:
        raise ValueError(f"{target!r} has files that result.save has not written. Pass the path of a new folder.")
    model_entry = json.loads(fs.cat_file(f"{place}/{SCHEMA_FILE}")).get("model") or {}
    return model_entry.get("file")


def _written(model: Any, folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the file of a model in its own format, and what opens it."""
    kind = kind_of(model, KINDS)
    if is_keras_model(model):
        file = folder / "model.keras"
        model.save(file)
        return file, {"kind": "keras"}
    if kind == "torch.nn.Module":
        import torch

        file = folder / "model.pt"
        torch.save(model, file, pickle_module=cloudpickle)  # classes of a notebook travel by value
        return file, {"kind": "torch"}
    if kind == "xgboost.XGBModel":
        file = folder / "model.ubj"
        model.save_model(file)
        own = next(each for each in type(model).__mro__ if each.__module__.startswith("xgboost."))
        return file, {"kind": "xgboost", "class": own.__name__}
    file = folder / "model.pickle"
    file.write_bytes(cloudpickle.dumps(model))
    return file, {"kind": "pickle"}
