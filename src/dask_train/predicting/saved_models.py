"""Models that ``result.save`` has written, opened with their schemas."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import pickle
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from dask_train.collections.schema.files import SCHEMA_FILE, json_within, read_json
from dask_train.collections.schema.frame_schema import FrameSchema, schema_from
from dask_train.extras import check_installed, install_command
from dask_train.fitting.schemas import schema_for
from dask_train.predicting.server.files import ModelFile
from dask_train.stores import checked_options, open_store, reaching

R = TypeVar("R")


def opened_first(verb: Callable[..., R]) -> Callable[..., R]:
    """Return a verb that is given the model itself where its path is passed, and its schema; both are opened here.

    Its signature gets ``storage_options``, which are for these two.
    """

    @wraps(verb)
    def called(*args: Any, storage_options: Mapping[str, Any] | None = None, **kwargs: Any) -> R:
        model, schema = args[0] if args else kwargs.get("model"), kwargs.get("schema")
        options = checked_options(storage_options, model=model, schema=schema)
        if isinstance(model, str | os.PathLike) or options:
            model, schema = opened_model(model, schema, options)
            kwargs |= {} if schema is None else {"schema": schema}
            args, kwargs = (model, *args[1:]), {name: value for name, value in kwargs.items() if name != "model"}
        return verb(*args, **kwargs)

    own = inspect.signature(verb)
    options = inspect.Parameter(
        "storage_options",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation="Mapping[str, Any] | None",
    )
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), options])  # type: ignore[attr-defined]
    return called


def opened_model(model: Any, schema: Any, options: Mapping[str, Any] | None = None) -> tuple[Any, FrameSchema | None]:
    """Return a model, or a ``.keras`` file for each process to read, and what it knows of frames.

    Parameters
    ----------
    model
        A model; or the path of a ``.keras`` file, or of a folder that ``result.save`` has written.
    schema
        As :func:`dask_train.predict` takes it; it counts before that of the model.
    options
        ``storage_options`` for both.

    Raises
    ------
    TypeError, ValueError
        The schema can't be read; or the folder does not hold the model that it was written with.
    """
    if not isinstance(model, str | os.PathLike):
        return model, schema_for(model, schema, options)
    file = ModelFile(os.fspath(model), options)
    if file.path.endswith(".keras"):
        saved = _within(file)
        return file, schema_for(None, schema, options) or schema_from(saved)
    saved = _of_folder(file)
    if saved is None:  # the error of a model file of another kind is raised where it is opened
        return file, schema_for(None, schema, options)
    return _opened(file, saved["model"]), schema_for(None, schema, options) or schema_from(saved)


def _within(file: ModelFile) -> dict[str, Any] | None:
    try:
        fs, place = open_store(file.path, file.options)
        with fs.open(place, "rb") as content:
            return json_within(content)
    except Exception:  # what is wrong with the file is reported where the model is read
        return None


def _of_folder(file: ModelFile) -> dict[str, Any] | None:
    with reaching("model", file.path, file.options) as (fs, place):
        is_ours = fs.exists(f"{place.rstrip('/')}/{SCHEMA_FILE}")  # isdir would say no where a store refuses to tell
    saved = read_json(file.path, file.options) if is_ours else None
    return saved if saved is not None and "model" in saved else None


def _opened(folder: ModelFile, entry: dict[str, str]) -> Any:
    """Return the model of a folder, once it is seen that it is the one of the schema."""
    file = f"{folder.path.rstrip('/')}/{entry['file']}"
    try:
        with reaching("model", file, folder.options) as (fs, place):
            content = fs.cat_file(place)
    except OSError as error:
        raise ValueError(f"The model {file} can't be read: {error}. Save it again, with result.save.") from error
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ValueError(
            f"{file} is not the model that was saved with the schema beside it: one of the two files was replaced, or "
            "saving was interrupted. Save the result again, with result.save."
        )
    if entry["kind"] == "keras":
        return ModelFile(file, folder.options)
    if entry["kind"] == "torch":
        check_installed(f"Opening {file}", "torch", install_command("torch"))
        import torch

        return torch.load(io.BytesIO(content), weights_only=False)
    if entry["kind"] == "xgboost":
        check_installed(f"Opening {file}", "xgboost", install_command("xgboost"))
        import xgboost

        estimator = getattr(xgboost, entry["class"])()
        estimator.load_model(bytearray(content))
        return estimator
    return pickle.loads(content)  # noqa: S301 - as joblib.load: from a trusted source
