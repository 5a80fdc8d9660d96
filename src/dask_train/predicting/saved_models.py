"""Models that ``result.save`` has written, opened with their schemas."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import fsspec  # type: ignore[import-untyped]

from dask_train.collections.schema.files import SCHEMA_FILE, json_within, read_json, schema_from
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.extras import check_installed, install_command
from dask_train.fitting.schemas import schema_for

R = TypeVar("R")


def opened_first(verb: Callable[..., R]) -> Callable[..., R]:
    """A verb that is given the model itself where its path is passed, and its schema."""

    @wraps(verb)
    def called(*args: Any, **kwargs: Any) -> R:
        model = args[0] if args else kwargs.get("model")
        if not isinstance(model, str | os.PathLike):
            return verb(*args, **kwargs)
        model, schema = opened_model(model, kwargs.get("schema"))
        if schema is not None:
            kwargs["schema"] = schema
        return verb(model, *args[1:], **{name: value for name, value in kwargs.items() if name != "model"})

    return called


def opened_model(model: Any, schema: Any) -> tuple[Any, FrameSchema | None]:
    """Return a model, or the path of a ``.keras`` file for each process to read, and what it knows of frames.

    Parameters
    ----------
    model
        A model; or the path of a ``.keras`` file, or of a folder that ``result.save`` has written.
    schema
        As :func:`dask_train.predict` takes it; it counts before that of the model.

    Raises
    ------
    TypeError, ValueError
        The schema can't be read; or the folder does not hold the model that it was written with.
    """
    if not isinstance(model, str | os.PathLike):
        return model, schema_for(model, schema)
    path = os.fspath(model)
    if path.endswith(".keras"):
        saved = _within(path)
        return path, schema_for(None, schema) or schema_from(saved)
    saved = _of_folder(path)
    if saved is None:  # the error of a model file of another kind is told where it is opened
        return path, schema_for(None, schema)
    return _opened(path, saved["model"]), schema_for(None, schema) or schema_from(saved)


def _within(path: str) -> dict[str, Any] | None:
    try:
        with fsspec.open(path, "rb") as file:
            return json_within(file)
    except Exception:  # what is wrong with the file is told where the model is read
        return None


def _of_folder(path: str) -> dict[str, Any] | None:
    try:
        fs, place = fsspec.core.url_to_fs(path)
        is_ours = fs.isdir(place) and fs.exists(f"{place.rstrip('/')}/{SCHEMA_FILE}")
    except (ImportError, OSError, ValueError):
        return None
    found = read_json(path) if is_ours else None
    return found if found is not None and "model" in found else None


def _opened(path: str, told: dict[str, str]) -> Any:
    """The model of a folder, once it is seen that it is the one of the schema."""
    file = f"{path.rstrip('/')}/{told['file']}"
    fs, place = fsspec.core.url_to_fs(file)
    try:
        content = fs.cat_file(place)
    except OSError as error:
        raise ValueError(f"The model {file} can't be read: {error}. Save it again, with result.save.") from error
    if hashlib.sha256(content).hexdigest() != told["sha256"]:
        raise ValueError(
            f"{file} is not the model that was saved with the schema beside it: one of the two files was replaced, or "
            "saving was interrupted. Save the result again, with result.save."
        )
    if told["kind"] == "keras":
        return file
    if told["kind"] == "torch":
        check_installed(f"Opening {file}", "torch", install_command("torch"))
        import torch

        return torch.load(io.BytesIO(content), weights_only=False)
    if told["kind"] == "xgboost":
        check_installed(f"Opening {file}", "xgboost", install_command("xgboost"))
        import xgboost

        estimator = getattr(xgboost, told["class"])()
        estimator.load_model(bytearray(content))
        return estimator
    return pickle.loads(content)  # noqa: S301 - as joblib.load: of those whom the user trusts
