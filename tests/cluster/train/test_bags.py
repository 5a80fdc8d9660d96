"""Bags of dicts as data: the model is that of the arrays they hold."""

from __future__ import annotations

from functools import partial

import dask
import dask.bag as db
import numpy as np
import pytest
import torch

import dask_train as dt

X = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
Y = X.sum(axis=1)


def fitted(x, y, client, workers, **settings):
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
    result = dt.fit(
        module,
        x,
        y,
        loss=torch.nn.MSELoss(),
        optimizer=partial(torch.optim.Adam, lr=0.01),
        epochs=3,
        batch_size=10,
        workers=workers,
        shuffle=False,
        client=client,
        verbose=0,
        **settings,
    )
    assert result.ledger.trained == 3 * len(X)
    return list(module.parameters())


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_module_is_that_of_the_arrays(client, workers):
    rows = [{"x": x, "y": y} for x, y in zip(X, Y, strict=True)]
    bag = db.from_sequence([*rows, {"x": X[0], "y": np.inf}], npartitions=6).filter(lambda row: row["y"] < np.inf)
    found = fitted(bag, None, client, workers, features="x", label="y")
    tolerance = 1e-5 if workers > 1 else 0.0
    for one, wanted in zip(found, fitted(X, Y, client, 1), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


def test_batches_of_columns_by_name(client):
    def worker(session):
        return [(x.tolist(), y.tolist()) for x, y in session.batches(epochs=1, batch_size=8)]

    rows = [{"a": number, "b": number / 2, "label": number % 2} for number in range(30)]
    bag = db.from_sequence(rows, npartitions=4)
    run = partial(dt.train, worker, roles={"worker": 3}, client=client, progress=False)
    result = run(data=bag, features=["a", "b"], label="label")
    found = [pair for rank in result.results["worker"] for x, y in rank for pair in zip(map(tuple, x), y, strict=True)]
    assert sorted(found) == [((number, number / 2), number % 2) for number in range(30)]


@pytest.fixture
def processes_end_soon():
    """Processes in which a model predicts end soon: the Dask workers are those of other tests, too."""
    with dask.config.set({"train.predict.idle": "100ms"}):
        yield


@pytest.mark.slow  # two kinds of processes are started
def test_predictions_and_scores_are_those_of_the_arrays(client, processes_end_soon):
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
    wanted = module(torch.from_numpy(X)).detach().numpy()
    bag = db.from_sequence([{"x": x, "y": y} for x, y in zip(X, Y, strict=True)], npartitions=6)
    predicted = dt.predict(module, bag, features="x", client=client)
    np.testing.assert_allclose(predicted.compute(), wanted, rtol=1e-5, atol=1e-6)
    numbers = db.from_sequence([dict(zip("abcd", map(float, x), strict=True)) for x in X], npartitions=6)
    predicted = dt.predict(module, numbers, features=list("abcd"), client=client)
    np.testing.assert_allclose(predicted.compute(), wanted, rtol=1e-5, atol=1e-6)
    run = partial(dt.evaluate, module, loss=torch.nn.MSELoss(), client=client, verbose=0)
    assert run(bag, features="x", label="y") == {"loss": pytest.approx(np.mean((wanted - Y) ** 2), rel=1e-5)}


def test_a_task_predicts_a_bag(client):
    def task():
        rows = db.from_sequence([{"a": float(number)} for number in range(5)], npartitions=2)
        return dt.predict(lambda part: 2 * part["a"], rows).compute().tolist()

    futures = [client.submit(task, pure=False) for _ in range(4)]  # more than there are threads
    assert client.gather(futures) == [[0.0, 2.0, 4.0, 6.0, 8.0]] * 4
