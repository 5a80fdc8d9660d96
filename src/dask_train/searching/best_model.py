"""The best model of a search, as it is held, kept and logged: a Keras model taken apart, or an estimator as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.stored import store, stored

_ESTIMATOR = "estimator.pickle"


def keep(folder: Path, model: Any) -> None:
    """Write it into a local folder, which is made."""
    folder.mkdir()
    if isinstance(model, tuple):
        store(folder, {"header": model[0], "arrays": model[1]})
    else:
        (folder / _ESTIMATOR).write_bytes(cloudpickle.dumps(model))


def kept(folder: Path) -> Any:
    """Return what :func:`keep` has written there, as it was held."""
    if (folder / _ESTIMATOR).exists():
        return cloudpickle.loads((folder / _ESTIMATOR).read_bytes())
    told = stored(folder)
    return told["header"], told["arrays"]


def whole(model: Any) -> Any:
    """Return the model as its user has it: a ``keras.Model``, or the estimator."""
    if not isinstance(model, tuple):
        return model
    from dask_train.keras_models.serialization import parts_to_model

    return parts_to_model(*model)


def saved(model: Any, folder: Path) -> Path:
    """Return a file for those who read logs: of Keras, or a pickle of the estimator."""
    if isinstance(model, tuple):
        path = folder / "best_model.keras"
        whole(model).save(path)
    else:
        path = folder / "best_model.pickle"
        path.write_bytes(cloudpickle.dumps(model))
    return path
