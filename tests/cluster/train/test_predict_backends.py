"""Model processes run the backend that the client's Keras runs on, whatever the Dask workers' environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys, warnings
import dask.array as da, keras, numpy as np
from distributed import Client, LocalCluster
import dask_train as dt

warnings.simplefilter("ignore", DeprecationWarning)  # of Keras, where it makes an array of a variable
BACKEND = keras.backend.backend()
if BACKEND == "jax":
    import jax
    jax.config.update("jax_enable_x64", True)

class Place(keras.layers.Layer):
    def call(self, x):
        return keras.ops.ones_like(x[:, :1]) * len(keras.backend.backend())

if __name__ == "__main__":
    os.environ.update(KERAS_BACKEND="tensorflow", JAX_ENABLE_X64="0")  # as the Dask workers have it
    keras.utils.set_random_seed(1)
    rows = keras.Input((4,))
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(keras.layers.Dense(5, "relu")(rows)))
    model = keras.Model(rows, {"score": keras.layers.Dense(1)(hidden), "place": Place()(rows)})
    scorer = keras.Model(rows, model.output["score"])
    scorer.compile("sgd", "mse", metrics=["mae"])
    numbers = keras.Input((), dtype="int64")
    kept = keras.Model(numbers, keras.layers.Identity()(numbers))
    x = np.random.default_rng(0).normal(size=(103, 4)).astype("f4")
    y = x[:, :1]
    expected = model.predict(x, verbose=0)
    scores = scorer.evaluate(x, y, 16, verbose=0, return_dict=True)
    lazy = da.from_array(x, chunks=((40, 3, 60), 4))
    large = np.arange(10) + (1 << 40)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        found = dt.predict(model, lazy, batch_size=16)
        np.testing.assert_allclose(found["score"].compute(), expected["score"], rtol=1e-4, atol=1e-5)
        assert (found["place"].compute() == len(BACKEND)).all()
        evaluated = dt.evaluate(scorer, lazy, y, batch_size=16, verbose=0)
        np.testing.assert_allclose([evaluated[n] for n in scores], list(scores.values()), rtol=1e-5)
        dt.predict_to("found.zarr", scorer, da.from_array(x, chunks=(40, 4)), batch_size=16)
        np.testing.assert_allclose(da.from_zarr("found.zarr").compute(), expected["score"], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(dt.predict(kept, large).compute(), large)
        said = [line for lines in client.get_worker_logs().values() for _, line in lines]
        assert not [line for line in said if "without a template" in line], said
"""


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.nightly)])
def test_a_model_of_another_backend(backend: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
