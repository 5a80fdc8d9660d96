"""What users pass as a model to predict with: distinguished, described, and made a value that travels."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.data.columns import Column
from dask_train.data.structure import Places
from dask_train.extras import check_installed, install_command
from dask_train.fitting.trees.categories import finds_categories
from dask_train.frameworks.keras.environment import backend_environment
from dask_train.identity.digest import digest
from dask_train.identity.special import keras_contents
from dask_train.inputs.data import InputData
from dask_train.predicting.object_outputs import outputs_of, own_score, promised
from dask_train.predicting.server.boosters import rows_to_booster
from dask_train.predicting.server.files import ModelFile
from dask_train.predicting.server.in_process import LocalModel, ObjectModel
from dask_train.predicting.server.in_use import in_use
from dask_train.predicting.server.values import Call, ModelParts
from dask_train.settings.process import Settings, named_in
from dask_train.spelling import by_caller, named, passed
from dask_train.stores import place_anywhere

# Libraries whose settings hold for estimators and functions; others where these name them.
_OF_OBJECTS = ("numpy", "pandas", "sklearn", "xgboost")

# Packages whose estimators scikit-learn's check tells to be fitted; in a pipeline there may be others.
_KNOWS_WHETHER_FITTED = frozenset({"sklearn", "xgboost", "lightgbm", "dask_train"})

# The structure of what a model makes of inputs, and its columns.
Describe = Callable[[InputData], tuple[Places, tuple[Column, ...]]]


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model, ready to be sent.

    Attributes
    ----------
    value
        What tasks get.
    describe
        What it makes of rows.
    taken_dtype
        The dtype that it takes for one that it is given.
    takes_frames
        Whether it gets frames as they are.
    finds_categories
        Whether it finds those of frames by value.
    takes_text
        Whether it takes arrays of text.
    model
        A network, opened here.
    scores
        What an estimator is scored by; None for a Keras model, whose metrics say it.
    floatx
        What Keras makes of floats.
    """

    value: Any
    describe: Describe
    taken_dtype: Callable[[np.dtype], np.dtype] = lambda dtype: dtype
    takes_frames: bool = False
    finds_categories: bool = True
    takes_text: bool = False
    model: Any = None
    scores: str | None = None
    floatx: str = "float32"

    def call(self, verb: str, inputs: InputData, batch_size: int) -> Call:
        """Return what tasks are asked.

        Raises
        ------
        ValueError
            The data does not fit the model.
        """
        rows = [replace(column, dtype=self.taken_dtype(np.dtype(column.dtype)).str) for column in inputs.columns]
        columns = inputs.columns.with_rows(rows)
        as_taken = replace(inputs, columns=columns)
        places, outputs = (0, ()) if verb == "evaluate" else self.describe(as_taken)
        return Call(verb=verb, columns=columns, outputs=outputs, places=places, batch_size=batch_size)


def predictor(model: Any, *, method: str | None, meta: Any, travels: bool, compiled: bool | None = None) -> Predictor:
    """Return a model as a user passed it.

    Parameters
    ----------
    model, method, meta
        As :func:`~dask_train.predict` takes them.
    travels
        Whether it is to be sent to Dask workers.
    compiled
        Whether its loss and metrics are needed. Where it is None those of a Keras model travel if it has some, so that
        the process which has predicted can evaluate it, too; False is for a token that does not depend on them.

    Raises
    ------
    TypeError, ValueError
        It is nothing that predicts, or an argument is not for models of its kind.
    """
    if isinstance(model, str | os.PathLike):
        model = ModelFile(os.fspath(model))
    is_file = isinstance(model, ModelFile)
    kinds = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    is_network = is_file or bool({"keras", "torch"} & kinds)
    kind = "str" if is_file else type(model).__name__
    for name, value in (("method", method), ("meta", meta)):
        if is_network and value is not None:
            raise ValueError(
                f"{name}={value!r} is for estimators and functions; a {kind} is a model whose outputs "
                "are known. Leave it out."
            )
    if is_file:
        return _file(model, travels=travels, compiled=bool(compiled))
    if "keras" in kinds:
        return _keras(model, travels=travels, compiled=compiled)
    if "torch" in kinds:
        if compiled:
            raise TypeError(
                f"model is a {type(model).__name__}, a torch module, which has no loss and no metrics of its own. "
                "Predict, and compute what you need of it and the targets."
            )
        return _torch(model, travels=travels)
    return _object(model, method, meta, scored=bool(compiled))


def _keras(model: Any, *, travels: bool, compiled: bool | None) -> Predictor:
    import keras

    from dask_train.predicting.server import keras_model

    if not isinstance(model, keras.Model):
        raise TypeError(f"model is a {type(model).__name__}; pass a keras.Model, such as one made of it.")
    if compiled:
        _check_compiled(model)
    header, arrays = keras_model.take_apart(model, compiled=compiled is not False)
    settings = Settings.here("numpy", "keras", keras.backend.backend())
    token = _token(settings, *keras_contents(header, arrays))
    data = pickle.dumps(header)
    return _network(
        ModelParts(
            kind="keras",
            name=model.name,
            token=token,
            header=data,
            arrays=arrays,
            opened_bytes=sum(array.nbytes for array in arrays),
            environment=backend_environment(keras.backend.backend()),
            settings=settings,
        ),
        model,
        travels=travels,
        describe=lambda inputs: keras_model.described(model, inputs.columns),
        taken_dtype=keras_model.taken_dtype,
        takes_text=keras.backend.backend() == "tensorflow",
        floatx=keras.config.floatx(),
    )


def _file(file: ModelFile, *, travels: bool, compiled: bool) -> Predictor:
    check_format(file.path)
    check_installed(f"Opening {file.path}", "keras", install_command("tensorflow"))
    import keras

    from dask_train.keras_models.custom_objects import CustomObjects
    from dask_train.keras_models.serialization import model_size_bytes
    from dask_train.predicting.server import files, keras_model

    model, checksum = files.read_file(file, compiled=compiled)
    custom = CustomObjects(model)
    if not custom.is_plain:  # Keras imports no modules of the user's where it reads the file
        return _keras(model, travels=travels, compiled=compiled)
    if compiled:
        _check_compiled(model)
    there = ModelFile(place_anywhere(file.path), file.options)  # Dask workers may have another working directory
    # Its token is without credentials, and has the path as it was passed: a model stays the same when credentials are
    # renewed, and in another working directory.
    known_by = files.header_of(ModelFile(file.path), checksum, compiled=compiled)
    settings = Settings.here("numpy", "keras", keras.backend.backend())
    return _network(
        ModelParts(
            kind="file",
            name=file.path,
            token=_token(settings, known_by, custom.code),
            header=files.header_of(there, checksum, compiled=compiled),
            arrays=(),
            opened_bytes=2 * model_size_bytes(model),  # the file, too
            environment=backend_environment(keras.backend.backend()),
            settings=settings,
        ),
        model,
        travels=travels,
        describe=lambda inputs: keras_model.described(model, inputs.columns),
        taken_dtype=keras_model.taken_dtype,
        takes_text=keras.backend.backend() == "tensorflow",
        floatx=keras.config.floatx(),
    )


def check_format(path: str) -> None:
    """Check that a path names a model file by its ending.

    Raises
    ------
    ValueError
        It does not.
    """
    if path.endswith(".keras"):
        return
    ways = {
        ".onnx": "onnxruntime.InferenceSession(path).run(None, {name: x})[0]",
        ".pb": "tf.saved_model.load(path).serve(x).numpy()",
        ".tflite": "a tf.lite.Interpreter",
        ".pt": "torch.load(path)(torch.from_numpy(x)).numpy()",
        ".pt2": "torch.export.load(path).module()(torch.from_numpy(x)).numpy()",
        ".pth": "torch.load(path)(torch.from_numpy(x)).numpy()",
    }
    ending = ".pb" if os.path.isdir(path) else os.path.splitext(path)[1]
    problem = (
        f"{named('model')} is {path!r}; a model file is one that model.save('....keras') has written, and a folder one "
        "that result.save has."
    )
    raise ValueError(
        problem
        + by_caller(
            f" Pass a function for others, that opens the file where it is called, once a process, and returns an "
            f"array of a batch x: {ways[ending]}; or the opened module, of torch."
            if ending in ways
            else " Open others yourself, and pass a Keras model, a torch module or a function.",
            " Others predict in a program: dt.predict takes functions and opened models.",
        )
    )


def _check_compiled(model: Any) -> None:
    if not model.compiled:
        raise ValueError(f"Model {model.name!r} is not compiled. Call model.compile(loss=..., metrics=[...]) first.")


def _torch(model: Any, *, travels: bool) -> Predictor:
    from dask_train.frameworks.torch.modules import check_shaped, taken_dtype
    from dask_train.predicting.server import torch_model

    kind, module = torch_model.kind_of(model)
    check_shaped(module)
    header, arrays = torch_model.take_apart(kind, model, module)
    settings = Settings.here("numpy", "torch")
    token = _token(settings, kind, model if kind == torch_model.EXPORTED else module)
    return _network(
        ModelParts(
            kind=kind,
            name=type(model).__name__,
            token=token,
            header=header,
            arrays=arrays,
            opened_bytes=sum(array.nbytes for array in arrays) or len(header),
            settings=settings,
        ),
        module,
        travels=travels,
        describe=lambda inputs: torch_model.described(module, inputs.columns),
        taken_dtype=partial(taken_dtype, module),
    )


def _token(settings: Settings, *contents: Any, with_modes: bool = False) -> str:
    """Return what distinguishes a model from others, and from the same one under other settings."""
    differences = settings.differences()
    return digest(*contents, *([differences] if differences else []), with_modes=with_modes)


def _pickled(model: Any) -> bytes:
    """Return a pickle without the arrays; empty if there can be none, which is reported if it has to travel."""
    try:
        return bytes(cloudpickle.dumps(model, protocol=5, buffer_callback=[].append))
    except Exception:
        return b""


def _network(parts: ModelParts, model: Any, *, travels: bool, describe: Describe, **others: Any) -> Predictor:
    value = parts if travels else LocalModel(model, parts.name, parts.token, parts.settings)
    return Predictor(value=value, model=model, describe=partial(_alone, model, describe), **others)


def _alone(model: Any, describe: Describe, inputs: InputData) -> tuple[Places, tuple[Column, ...]]:
    """Describe a model while no task in a thread of Dask's uses it: both set its mode, and put it back."""
    with in_use(model):
        return describe(inputs)


def _object(model: Any, method: str | None, meta: Any, *, scored: bool) -> Predictor:
    """Return an estimator or a function."""
    scores, by_value = _score_of(model) if scored else None, finds_categories(model)
    model = rows_to_booster(model)
    if method is None and hasattr(model, "predict"):
        method = "predict"
    name = getattr(model, "__name__", type(model).__name__)
    if method is not None and not callable(getattr(model, method, None)):
        raise TypeError(f"{name} has no method {method!r}. Name another with {passed('method')}.")
    if method is None and not callable(model):
        best = " Of a search pass its best_model." if hasattr(type(model), "best_params") else ""
        raise TypeError(
            f"model is a {type(model).__name__}; pass a Keras model, a torch module, the path of a .keras file, an "
            f"estimator with predict, or a function.{best}"
        )
    _check_fitted(model, name)
    settings = Settings.here(*_OF_OBJECTS, *named_in(_pickled(model), model))
    token = _token(settings, method, model, with_modes=True)  # of modules within a function nobody sets the mode
    value = ObjectModel(model, method, name, token, settings)
    describe = partial(outputs_of, value, meta, partial(promised, model, method))
    return Predictor(value=value, describe=describe, takes_frames=True, finds_categories=by_value, scores=scores)


def _check_fitted(model: Any, name: str) -> None:
    """Check that an estimator of scikit-learn's, XGBoost's or LightGBM's own, or of ours, is fitted.

    Raises
    ------
    ValueError
        It is not.
    """
    is_known = hasattr(model, "fit") and type(model).__module__.partition(".")[0] in _KNOWS_WHETHER_FITTED
    if not is_known or hasattr(model, "steps"):
        return
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise ValueError(f"{name} is not fitted, so it predicts nothing. Call its fit, or dask_train.fit.") from error


def _score_of(model: Any) -> str:
    """Return what an estimator's own ``score`` is."""
    if score := own_score(model):
        return score
    raise TypeError(
        f"model is a {type(model).__name__}; dask_train.evaluate takes compiled Keras models, and classifiers and "
        "regressors of scikit-learn. For others predict, and compute what you need of it and the targets."
    )
