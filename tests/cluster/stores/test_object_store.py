"""Checkpoints, predictions and data in object stores that all processes know from their environment."""

from __future__ import annotations

import io
import os
import signal
import time

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
import zarr
from distributed import Client
from zarr.core.sync import cleanup_resources

import dask_train as dt


@pytest.fixture(scope="module")
def client(logged_in, local_clusters):
    """Of two Dask workers that know the server from their environment, as they would know AWS."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "env": logged_in.environment}
    with local_clusters() as make, Client(make(**settings)) as client:
        yield client


def test_a_killed_role_goes_on_from_its_checkpoint(client, store):
    def claims_in(url):
        system, path = fsspec.core.url_to_fs(url)
        system.invalidate_cache()
        names = [name.rpartition("/")[2] for name in system.ls(path, detail=False)]
        return [name for name in names if name.startswith("run-")]

    def worker(session):
        kept, total, start = session.load_checkpoint(), 0.0, (0, 0)
        if kept is not None:
            total, *start = np.load(kept / "deeper" / "state.npy")
            start = (int(start[0]), int(start[1]))
        for batch in session.batches(epochs=3, batch_size=10, start=start):
            total += float(batch.sum())
            if session.position == (1, 5) and session.attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)

            def write(folder, total=total):
                (folder / "deeper").mkdir()
                np.save(folder / "deeper" / "state.npy", np.array([total, *session.position]))

            if session.position[1] % 4 == 0:
                session.save_checkpoint(write)
        return total, claims_in(url)

    x = np.arange(100.0)
    url = f"{store.url}/run"
    result = dt.train(worker, roles={"worker": 1}, data=da.from_array(x, chunks=30), checkpoint=url, client=client)
    ((total, claims),) = result.results["worker"]
    assert total == 3 * x.sum()
    assert len(claims) == 1, "which keeps other runs off while this one goes on"
    assert len(result.attempts) == 2
    assert (result.ledger.trained, result.ledger.dropped) == (300, 0)
    names = store.files(url)
    kept = {name.partition("/")[0].removesuffix(".json") for name in names}
    assert names == sorted(f"{name}{file}" for name in kept for file in (".json", "/deeper/state.npy"))
    assert len(kept) == 2, "the last two are kept"


@pytest.mark.slow
def test_fit_goes_on_as_if_nothing_had_happened(client, store, tmp_path):
    import keras

    class Dying(keras.callbacks.Callback):
        def __init__(self, mark):
            super().__init__()
            self.mark, self.epoch = mark, 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (1, 7) and not os.path.exists(self.mark):
                open(self.mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)

    def fitted(mark, **arguments):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        x = da.from_array(np.random.default_rng(0).normal(size=(203, 4)), chunks=(50, 4))
        return dt.fit(
            model,
            x,
            x.sum(axis=1),
            workers=2,
            epochs=3,
            batch_size=20,
            seed=2,
            callbacks=[Dying(str(mark))],
            client=client,
            **arguments,
        )

    (tmp_path / "none dies").touch()
    wanted = fitted(tmp_path / "none dies")
    result = fitted(tmp_path / "one dies", checkpoint=dt.Checkpoint(f"{store.url}/fit", every_steps=3))
    assert len(result.attempts) == 2
    for found, expected in zip(result.model.get_weights(), wanted.model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (result.ledger.trained, result.ledger.dropped) == (3 * 203, 0)


def doubled(x):
    return 2 * x


@pytest.mark.parametrize("name", ["doubled", "doubled.zarr"])
def test_predictions_go_on_where_they_were(client, store, name):
    x = np.arange(60.0).reshape(20, 3)
    url, lazy = f"{store.url}/{name}", da.from_array(x, chunks=(6, 3))
    assert dt.predict_to(url, doubled, lazy, client=client).num_written == 4
    done = [file for file in store.files(url) if "_dask_train/done/" in file]
    assert len(done) == 4
    store.system.rm(f"{url}/{done[2]}")
    result = dt.predict_to(url, doubled, lazy, client=client)
    assert (result.num_parts, result.num_rows, result.num_written) == (4, 20, 1)
    store.system.pipe_file(f"{url}/notes.txt", b"mine")
    assert dt.predict_to(url, doubled, lazy, client=client, overwrite=True).num_written == 4
    assert "notes.txt" in {file.rpartition("/")[2] for file in store.files(url)}
    if name.endswith(".zarr"):
        found = zarr.open_array(url, mode="r")[:]
        cleanup_resources()  # Zarr's threads would stay until the end
    else:
        found = np.concatenate([np.load(fsspec.open(f"{url}/part-{n:05}.npy").open()) for n in range(4)])
    np.testing.assert_array_equal(found, 2 * x)


def test_a_table_there_and_back(client, store):
    table = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0) % 7})
    dd.from_pandas(table, npartitions=3).to_parquet(f"{store.url}/table", write_index=False)
    frame = dd.read_parquet(f"{store.url}/table")

    def worker(session):
        return sum(float(batch.sum()) for batch in session.batches(batch_size=8))

    result = dt.train(worker, roles={"worker": 2}, data=frame, client=client)
    assert sum(result.results["worker"]) == table.to_numpy().sum()
    assert result.ledger.trained == 50
    dt.predict_to(f"{store.url}/sums", lambda part: part.sum(axis=1), frame, columns="sum", client=client)
    sums = dd.read_parquet(f"{store.url}/sums")["sum"].compute()
    np.testing.assert_array_equal(sums, table.sum(axis=1))


def test_files_of_a_bucket_are_rows(client, store):
    system, path = fsspec.core.url_to_fs(f"{store.url}/pictures")
    for number in range(30):
        system.pipe_file(f"{path}/{number % 3}/{number:02} [x].bin", bytes([number]) * 4)

    def decode(content):
        return np.frombuffer(content, np.uint8)

    def worker(session):
        return [(x[:, 0].tolist(), y.tolist()) for x, y in session.batches(epochs=1, batch_size=10)]

    rows = dt.files(f"{store.url}/pictures/*/*.bin", label="folder", decode=decode)
    assert rows.shape == (30, 4)
    result = dt.train(worker, roles={"worker": 2}, data=rows, client=client, progress=False)
    found = [pair for rank in result.results["worker"] for x, y in rank for pair in zip(x, y, strict=True)]
    assert sorted(found) == [(number, number % 3) for number in range(30)]


def test_records_and_arrays_of_a_bucket_are_rows(client, store):
    rows = [{"x": [float(number), 0.5], "y": number % 3} for number in range(30)]
    paths = dt.to_tfrecords(f"{store.url}/records", db.from_sequence(rows, npartitions=4))
    assert len(paths) == len(store.files(f"{store.url}/records")) == 4
    records = dt.tfrecords(f"{store.url}/records/*.tfrecord", features="x", label="y")

    def worker(session):
        return [(x[:, 0].tolist(), y.ravel().tolist()) for x, y in session.batches(epochs=1, batch_size=10)]

    def found(data):
        result = dt.train(worker, roles={"worker": 2}, data=data, client=client, progress=False)
        return sorted(pair for rank in result.results["worker"] for x, y in rank for pair in zip(x, y, strict=True))

    wanted = [(float(number), number % 3) for number in range(30)]
    assert found(records) == wanted
    system, path = fsspec.core.url_to_fs(f"{store.url}/arrays")
    x, y = np.array([row["x"] for row in rows]), np.array([row["y"] for row in rows])
    for name, array in (("x", x), ("y", y)):
        content = io.BytesIO()
        np.save(content, array)
        system.pipe_file(f"{path}/{name}.npy", content.getvalue())
    assert found((dt.npy(f"{store.url}/arrays/x.npy"), dt.npy(f"{store.url}/arrays/y.npy"))) == wanted
