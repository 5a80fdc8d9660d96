"""Tars and TFRecords as rows: the same batches on any number of workers, each row once an epoch, also after a kill."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import dask
import dask.bag as db
import numpy as np
import pytest
import torch
from distributed import Client

import dask_train as dt
from dask_train.errors import DataError

SAMPLES, BATCH_SIZE, EPOCHS = 43, 10, 2
X = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype(np.float32)
Y = np.arange(SAMPLES) % 3


def decode(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.float32)


def write_tars(folder: Path) -> None:
    for number, part in enumerate(np.array_split(np.arange(SAMPLES), 4)):
        with tarfile.open(folder / f"{number}.tar", "w") as archive:
            for row in part.tolist():
                for ending, content in (("bin", X[row].tobytes()), ("cls", str(Y[row]).encode())):
                    info = tarfile.TarInfo(f"{row:03}.{ending}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))


def write_tfrecords(folder: Path) -> None:
    rows = [{"bin": x.tobytes(), "cls": y} for x, y in zip(X, Y.tolist(), strict=True)]
    with dask.config.set(scheduler="synchronous"):
        dt.to_tfrecords(folder, db.from_sequence(rows, npartitions=4))


SOURCES = {"tars": (write_tars, dt.tars, "*.tar"), "tfrecords": (write_tfrecords, dt.tfrecords, "*.tfrecord")}


@pytest.fixture(scope="module")
def client(local_clusters):
    """Two Dask workers of their own: processes in which a model predicts stay beside them."""
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=2)) as one:
        yield one


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    """A function that lists the files anew."""
    write, verb, pattern = SOURCES[request.param]
    write(tmp_path)
    return lambda **settings: verb(
        tmp_path / pattern, **{"features": "bin", "label": "cls", "decode": decode, **settings}
    )


def gathered(session):
    return [(x.tolist(), y.tolist()) for x, y in session.batches(epochs=EPOCHS, batch_size=BATCH_SIZE, seed=3)]


def global_batches(result) -> list[list[tuple]]:
    by_step = zip(*result.results["worker"], strict=True)
    return [sorted(row for share in shares for row in zip(*share, strict=True)) for shares in by_step]


@pytest.mark.parametrize("streaming", [False, 2])
def test_each_row_comes_once_an_epoch_on_any_number_of_workers(client, source, streaming):
    run = partial(dt.train, gathered, client=client, progress=False, streaming=streaming)
    one, three = [run(roles={"worker": count}, data=source()) for count in (1, 3)]
    assert global_batches(one) == global_batches(three)
    steps = -(-SAMPLES // BATCH_SIZE)
    for epoch in range(EPOCHS):
        of_epoch = global_batches(three)[epoch * steps : (epoch + 1) * steps]
        assert sorted(row for batch in of_epoch for row in batch) == sorted(zip(X.tolist(), Y.tolist(), strict=True))
    assert three.ledger.trained == EPOCHS * SAMPLES


def add_random(row, generator):
    return row + generator.normal(size=row.shape).astype(np.float32)


def odd(content):
    row = decode(content)
    if row[0] < 0:
        raise ValueError("negative")
    return row


def test_samples_that_can_not_be_decoded_are_counted(client, source):
    run = partial(dt.train, gathered, client=client, progress=False)
    result = run(roles={"worker": 3}, data=source(decode=odd, on_error="skip"))
    assert result.ledger.skipped == (X[:, 0] < 0).sum()
    assert result.ledger.trained == EPOCHS * (X[:, 0] >= 0).sum()


def network():
    torch.manual_seed(3)
    return torch.nn.Linear(6, 3)


def fit(module, *data, workers, **settings):
    return dt.fit(
        module,
        *data,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(torch.optim.Adam, lr=0.01),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        workers=workers,
        verbose=0,
        **settings,
    )


def check_same(module, other, tolerance=0.0):
    for one, wanted in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_module_is_that_of_arrays(client, source, workers):
    wanted, module = network(), network()
    fit(wanted, X, Y, workers=1, client=client, shuffle=False)
    result = fit(module, source(), workers=workers, client=client, shuffle=False, validation_data=source())
    check_same(module, wanted, 1e-5 if workers > 1 else 0.0)
    assert result.ledger.trained == EPOCHS * SAMPLES
    predicted = dt.predict(module, source(), client=client).compute()
    np.testing.assert_allclose(predicted, module(torch.from_numpy(X)).detach(), rtol=1e-4, atol=1e-6)
    scores = dt.evaluate(module, source(), loss=torch.nn.CrossEntropyLoss(), client=client, verbose=0)
    assert scores["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-5)


def test_a_killed_worker_resumes_to_the_same_bits(client, source, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints")
    killed = place / "killed"

    def kill_once(row, generator):
        if not killed.exists() and any(place.glob("run*/*")):
            with suppress(FileExistsError):  # the other worker has come first
                killed.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return add_random(row, generator)

    wanted, module = network(), network()
    fit(wanted, source(augment=add_random), workers=2, client=client)
    checkpoint = dt.Checkpoint(place / "run", every_steps=3)
    result = fit(module, source(augment=kill_once), workers=2, client=client, checkpoint=checkpoint)
    assert killed.exists()
    assert len(result.attempts) == 2
    check_same(module, wanted)
    assert result.ledger.trained == EPOCHS * SAMPLES


def test_damage_is_told_by_its_file(client, source):
    rows = source()
    path = Path(rows.paths[2])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 100])
    with pytest.raises(DataError, match=rf"File '{path}' can't be read after record '.*': .*It is damaged"):
        dt.train(gathered, roles={"worker": 2}, data=rows, client=client, progress=False)
