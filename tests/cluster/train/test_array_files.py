"""Rows of HDF5 and .npy files, and of bare numbers: the models are those of the arrays, also after a kill."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from distributed import Client

import dask_train as dt
from dask_train.file_rows import array_files

h5py = pytest.importorskip("h5py")

X = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def client(local_clusters):
    """Two Dask workers of their own: processes in which a model predicts stay beside them."""
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=2)) as one:
        yield one


@pytest.fixture(params=["hdf5", "npy", "memmap"])
def rows(request, tmp_path, monkeypatch):
    """Both columns as Dask arrays of several blocks."""
    monkeypatch.setattr(array_files, "BLOCK_BYTES", 10 * X[0].nbytes)
    if request.param == "hdf5":
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["x"], file["y"] = X, Y
        return dt.hdf5(tmp_path / "rows.h5", "x", "y")
    for name, array in (("x", X), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", array)
        array.tofile(tmp_path / f"{name}.bin")
    if request.param == "npy":
        return dt.npy(tmp_path / "x.npy"), dt.npy(tmp_path / "y.npy")
    bare = partial(dt.memmap, dtype="float32")
    return bare(tmp_path / "x.bin", row_shape=(4,)), bare(tmp_path / "y.bin", row_shape=(1,))


class Dying(torch.nn.Linear):
    """Kills its process once, after a checkpoint."""

    place = None

    def forward(self, x):
        if self.place is not None and not (self.place / "killed").exists() and any(self.place.glob("run*/*")):
            with suppress(FileExistsError):  # the other worker has come first
                (self.place / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def fitted(x, y, client, workers=2, place=None, **settings):
    torch.manual_seed(3)
    module = Dying(4, 1)
    module.place = place
    result = dt.fit(
        module,
        x,
        y,
        loss=torch.nn.MSELoss(),
        optimizer=partial(torch.optim.Adam, lr=0.01),
        epochs=3,
        batch_size=10,
        workers=workers,
        client=client,
        verbose=0,
        **settings,
    )
    assert result.ledger.trained == 3 * len(X)
    return result, module


def check_same(module, other, tolerance=0.0):
    for one, wanted in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_module_is_that_of_the_arrays(client, rows, workers):
    _, wanted = fitted(X, Y, client, workers=1, shuffle=False)
    _, module = fitted(*rows, client, workers=workers, shuffle=False)
    check_same(module, wanted, 1e-5 if workers > 1 else 0.0)
    predicted = dt.predict(module, rows[0], client=client).compute()
    np.testing.assert_allclose(predicted, module(torch.from_numpy(X)).detach(), rtol=1e-4, atol=1e-6)


def test_a_killed_worker_resumes_to_the_same_bits(client, rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints")
    _, wanted = fitted(*rows, client)
    result, module = fitted(*rows, client, place=place, checkpoint=dt.Checkpoint(place / "run", every_steps=3))
    assert (place / "killed").exists()
    assert len(result.attempts) == 2
    check_same(module, wanted)
