"""Goes on with a checkpoint on the backend that Keras has in this process, whichever has kept it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from distributed import Client

import dask_train as dt

ROWS, BATCH_SIZE = 90, 20


def columns() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    x = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("f4")
    return x, x.sum(1, keepdims=True)


def made() -> Any:
    """A model with the same weights on all backends, whose optimizer keeps much."""
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_overwrite_frequency=5), "mse", metrics=["mae"])
    random = np.random.default_rng(1)
    model.set_weights([random.normal(size=value.shape) * 0.3 for value in model.get_weights()])
    return model


def go_on(folder: Path, epochs: int, *, workers: int) -> dict[str, Any]:
    """The history until that epoch; weights are written to the folder."""
    model = made()
    settings = {"batch_size": BATCH_SIZE, "epochs": epochs, "shuffle": False, "workers": workers, "verbose": 0}
    result = dt.fit(model, *columns(), checkpoint=folder / "kept", resume=True, **settings)
    np.savez(folder / "weights.npz", *model.get_weights())
    return {"backend": keras.backend.backend(), **result.history}


if __name__ == "__main__":
    with Client(sys.argv[1]):
        print(json.dumps(go_on(Path(sys.argv[2]), int(sys.argv[3]), workers=1)))
