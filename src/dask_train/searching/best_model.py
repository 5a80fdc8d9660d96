"""The best model of a search, as it is held, kept and logged: a Keras model taken apart, or another one as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.stored import store, stored
from dask_train.fitting.saved import saved as fit_saved

# Of any model but one of Keras.
_PICKLE = "estimator.pickle"


def keep(folder: Path, model: Any) -> None:
    """Write it into a local folder, which is made."""
    folder.mkdir()
    if isinstance(model, tuple):
        store(folder, {"header": model[0], "arrays": model[1]})
    else:
        (folder / _PICKLE).write_bytes(cloudpickle.dumps(model))


def kept(folder: Path) -> Any:
    """Return what :func:`keep` has written there, as it was held."""
    if (folder / _PICKLE).exists():
        return cloudpickle.loads((folder / _PICKLE).read_bytes())
    parts = stored(folder)
    return parts["header"], parts["arrays"]


def whole(model: Any) -> Any:
    """Return the model as its user has it: a ``keras.Model``, or another model."""
    if not isinstance(model, tuple):
        return model
    from dask_train.keras_models.serialization import parts_to_model

    return parts_to_model(*model)


def saved(model: Any, folder: Path) -> Path:
    """Return a file for readers of logs, as ``fit`` writes it."""
    path = fit_saved(whole(model), folder)
    return path.rename(folder / f"best_{path.name}")
