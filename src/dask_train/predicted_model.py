"""What users pass as a model to predict with: told apart, described, and made a value that travels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from dask.tokenize import tokenize

from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout, Places, leaves
from dask_train.prediction.in_process import LocalModel, ObjectModel
from dask_train.prediction.values import Call, ModelParts
from dask_train.prediction_inputs import Inputs

# Inputs to the structure and the columns of outputs.
Describe = Callable[[Layout, tuple[Column, ...]], tuple[Places, tuple[Column, ...]]]


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model, ready to be sent.

    Attributes
    ----------
    value
        What tasks get.
    describe
        What it makes of rows.
    taken
        The dtype that it takes for one that it is given.
    takes_frames
        Whether it gets frames as they are.
    """

    value: Any
    describe: Describe
    taken: Callable[[np.dtype], np.dtype] = lambda dtype: dtype
    takes_frames: bool = False

    def call(self, verb: str, inputs: Inputs, batch_size: int) -> Call:
        """What tasks are asked.

        Raises
        ------
        ValueError
            The data does not fit the model.
        """
        columns = tuple(replace(c, dtype=self.taken(np.dtype(c.dtype)).str) for c in inputs.columns)
        places, outputs = (0, ()) if verb == "evaluate" else self._described(inputs, columns)
        return Call(
            verb=verb, layout=inputs.layout, columns=columns, outputs=outputs, places=places, batch_size=batch_size
        )

    def _described(self, inputs: Inputs, columns: tuple[Column, ...]) -> tuple[Places, tuple[Column, ...]]:
        return self.describe(inputs.layout, columns)


def predictor(model: Any, *, method: str | None, meta: Any, travels: bool, compiled: bool = False) -> Predictor:
    """A model as a user passed it.

    Parameters
    ----------
    model, method, meta
        As :func:`~dask_train.predict` takes them.
    travels
        Whether it is to be sent to Dask workers.
    compiled
        Whether its loss and metrics are needed.

    Raises
    ------
    TypeError, ValueError
        It is nothing that predicts, or an argument is not for models of its kind.
    """
    kinds = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "keras" in kinds:
        return _keras(model, travels=travels, compiled=compiled)
    raise TypeError(f"model is a {type(model).__name__}.")


def _keras(model: Any, *, travels: bool, compiled: bool) -> Predictor:
    import keras

    from dask_train.prediction import keras_model

    header, arrays = keras_model.take_apart(model, compiled=compiled)
    token = tokenize(hashlib.sha256(header).hexdigest(), arrays)
    value: Any
    if travels:
        value = ModelParts(
            kind="keras",
            name=model.name,
            token=token,
            header=header,
            arrays=arrays,
            environment={"KERAS_BACKEND": keras.backend.backend()},
        )
    else:
        value = LocalModel(model, model.name, token)
    return Predictor(
        value=value,
        describe=lambda layout, columns: keras_model.described(model, layout, columns),
        taken=keras_model.taken_dtype,
    )
