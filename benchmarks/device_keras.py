"""Checks of ``device.sh`` with Keras, on the backend that ``KERAS_BACKEND`` names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import keras
import numpy as np

import dask_train as dt
from dask_train.doctor.examination import examine_templates

TOLERANCE = 2e-5  # of float32 weights of about 0.3 after 20 steps
RATE = 0.1


class Where(keras.callbacks.Callback):
    """Writes to a file where the model's first variable lies while it is trained."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        value = self.model.trainable_variables[0].value
        where = value.device if keras.backend.backend() == "torch" else next(iter(value.devices())).platform
        Path(self.path).write_text(str(where))


class Checks:
    """The checks, in the order in which they run."""

    def __init__(self, client: Any, *, rehearses: bool, broken: bool) -> None:
        self.client = client
        self.gpus: int | None = None if rehearses else 1
        self.platform = "cpu" if rehearses else {"torch": "cuda:0", "jax": "gpu"}[keras.backend.backend()]
        self.rate = RATE * (1.01 if broken else 1.0)
        random = np.random.default_rng(0)
        self.x, self.y = random.normal(size=(640, 16)).astype("f4"), random.integers(0, 4, 640)

    def fit(self) -> str:
        mine, fitted = self._model(self.rate), self._model(RATE)
        for start in range(0, 640, 32):
            mine.train_on_batch(self.x[start : start + 32], self.y[start : start + 32])
        notices, where = self._fitted(fitted, self.gpus)
        assert where == self.platform, f"it was trained on {where}"
        difference = _difference(mine.get_weights(), fitted.get_weights())
        assert difference < TOLERANCE, f"weights differ by {difference:.1e}"
        return f"largest difference {difference:.1e}, on {where}; notices {notices}"

    def fit_without_a_device(self) -> str:
        """Keras on torch fixes its default device when it is imported, so the template of one doesn't do for both."""
        before, after = self._model(RATE), self._model(RATE)
        _, where = self._fitted(before, 0)
        assert where == "cpu", f"it was trained on {where}"
        _, where = self._fitted(after, self.gpus)
        assert where == self.platform, f"it was trained on {where}"
        difference = _difference(before.get_weights(), after.get_weights())
        assert difference < TOLERANCE, f"weights differ by {difference:.1e}"
        templates = [one["imports"] for each in examine_templates(self.client).values() for one in each]
        assert len(templates) > 1, templates
        return f"largest difference to the device's {difference:.1e}; templates {', '.join(templates)}"

    def evaluation_and_prediction(self) -> str:
        model = self._model(RATE)
        x, y = da.from_array(self.x, chunks=(160, 16)), da.from_array(self.y, chunks=160)
        expected, found = model.evaluate(self.x, self.y, verbose=0), dt.evaluate(model, x, y)["loss"]
        assert abs(found - expected) < TOLERANCE, (found, expected)
        difference = _difference([model.predict(self.x, verbose=0)], [np.asarray(dt.predict(model, x))])
        assert difference < TOLERANCE, f"predictions differ by {difference:.1e}"
        return f"largest difference {difference:.1e}"

    def _model(self, rate: float) -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(4)])
        model.compile(keras.optimizers.SGD(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def _fitted(self, model: Any, gpus: int | None) -> tuple[list[str], str]:
        """Train a model with one worker, and return notices of the run and where it computed."""
        x, y = da.from_array(self.x, chunks=(160, 16)), da.from_array(self.y, chunks=160)
        with tempfile.NamedTemporaryFile() as file:
            settings = {"workers": 1, "shuffle": False, "verbose": 0, "callbacks": [Where(file.name)], "gpus": gpus}
            result = dt.fit(model, x, y, batch_size=32, **settings)
            return result.notices, Path(file.name).read_text()


def _difference(ones: list[Any], others: list[Any]) -> float:
    return max(
        float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in zip(ones, others, strict=True)
    )
