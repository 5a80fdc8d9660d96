"""Rows in the client's memory: no verb sends them through the scheduler, and nothing of them is left after it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from contextlib import contextmanager

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xgboost
from dask import delayed
from distributed import Client
from distributed.comm.tcp import TCP
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression as OfOneProcess

import dask_train as dt
from dask_train.cluster import client_rows
from dask_train.linear_model import LinearRegression
from dask_train.linear_model.columns import computed, over_rows

ROWS, WIDTH = 30_000, 20
X = np.random.default_rng(0).random((ROWS, WIDTH))
Y = X @ np.arange(WIDTH)
FRAME = pd.DataFrame({**{f"x{number}": X[:, number] for number in range(WIDTH)}, "y": Y})
NAMES = list(FRAME.columns[:-1])
KINDS = {
    "NumPy": lambda: ((X, Y), {}),
    "columns first": lambda: ((np.asfortranarray(X), Y), {}),
    "from_array": lambda: ((da.from_array(X, chunks=(7000, WIDTH)), da.from_array(Y, chunks=7000)), {}),
    "computed from it": lambda: ((da.from_array(X / 2, chunks=(7000, WIDTH)) * 2, da.from_array(Y, chunks=7000)), {}),
    "pandas": lambda: (FRAME, {"features": NAMES, "label": "y"}),
    "from_pandas": lambda: (dd.from_pandas(FRAME, npartitions=4), {"features": NAMES, "label": "y"}),
    "delayed": lambda: ([delayed((X[:9000], Y[:9000])), delayed((X[9000:], Y[9000:]))], {}),
}


@pytest.fixture(scope="module", params=["in this process", "in another"])
def shared_client(request, local_clusters):
    """Two Dask workers; a scheduler that is in this process may keep this process' own objects."""
    with local_clusters() as make:
        if request.param == "in this process":
            with Client(make(n_workers=2, threads_per_worker=1)) as client:
                yield client
            return
        with in_processes() as address, Client(address) as client:
            client.wait_for_workers(2, timeout=60)
            yield client


@contextmanager
def in_processes():
    """The address of a scheduler in a process of its own, with two Dask workers."""
    program = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.fixture
def client(shared_client, state, wait_for):
    """The shared client; fails when a test leaves a run, a result, or rows."""
    yield shared_client
    gc.collect()
    wait_for(lambda: state(shared_client)["runs"] == (), "the scheduler has no run")
    wait_for(lambda: not shared_client.sync(shared_client.scheduler.who_has), "the scheduler has no result")
    wait_for(lambda: not dict(client_rows._held), "no rows are held")


@pytest.fixture
def sent(monkeypatch):
    """The bytes that this process sends over Dask's connections: to the scheduler, or as the scheduler."""
    counts, write = [], TCP.write

    async def counted(self, *args, **kwargs):
        counts.append(await write(self, *args, **kwargs))
        return counts[-1]

    monkeypatch.setattr(TCP, "write", counted)
    return counts


def total(session):
    """Sums of features and of targets."""
    found = np.zeros(2)
    for x, y in session.batches(epochs=1, batch_size=1000):
        found += [float(x.sum()), float(y.sum())]
    return found


def by_train(data, columns):
    result = dt.train(total, roles={"worker": 2}, data=data, progress=False, **columns)
    np.testing.assert_allclose(sum(result.results["worker"]), [X.sum(), Y.sum()])
    assert (result.ledger.trained, result.ledger.repeated, result.ledger.dropped) == (ROWS, 0, 0)


def by_streaming(data, columns):
    def twice(session):
        return [[float(x.sum()), float(y.sum())] for x, y in session.batches(epochs=2, batch_size=1000)]

    result = dt.train(twice, roles={"worker": 2}, data=data, streaming=1, progress=False, **columns)
    np.testing.assert_allclose(np.concatenate(result.results["worker"]).sum(axis=0), [2 * X.sum(), 2 * Y.sum()])


def by_linear_model(data, columns):
    x, y = (data[columns["features"]], data["y"]) if columns else data
    model = LinearRegression().fit(x, y)
    np.testing.assert_allclose(model.coef_, OfOneProcess().fit(X, Y).coef_, atol=1e-9)
    assert model.score(x, y) == pytest.approx(1.0)


def by_evaluate(data, columns):
    model = OfOneProcess().fit(*((FRAME[NAMES], FRAME.y) if columns else (X, Y)))
    scores = dt.evaluate(model, *(data if isinstance(data, tuple) else [data]), verbose=0, **columns)
    assert next(iter(scores.values())) == pytest.approx(1.0)


def by_search(data, columns):
    given = data if isinstance(data, tuple) else [data]
    params = {"strategy": ["mean", "median"]}
    result = dt.search(DummyRegressor(), *given, params=params, cv=2, progress=False, **columns)
    assert result.best_params in ({"strategy": "mean"}, {"strategy": "median"})


def by_fit_of_trees(data, columns):
    given = data if isinstance(data, tuple) else [data]
    model = xgboost.XGBRegressor(n_estimators=3, max_depth=2)
    result = dt.fit(model, *given, workers=2, verbose=0, **columns)
    assert (result.ledger.trained, result.ledger.dropped) == (ROWS, 0)


VERBS = [(by_train, list(KINDS)), (by_streaming, ["NumPy", "from_pandas"])]
VERBS += [(by_fit_of_trees, ["NumPy", "from_pandas"])]
VERBS += [(by_linear_model, ["from_array", "from_pandas"])]
VERBS += [(by_evaluate, ["NumPy", "from_array", "from_pandas"]), (by_search, ["NumPy", "pandas"])]


@pytest.mark.parametrize(("verb", "kind"), [(verb, kind) for verb, kinds in VERBS for kind in kinds])
@pytest.mark.filterwarnings("error:Sending large graph")
def test_no_row_goes_through_the_scheduler(client, sent, verb, kind):
    data, columns = KINDS[kind]()
    assert client.status == "running"
    sent.clear()
    verb(data, columns)
    assert sum(sent) < X.nbytes / 4


def test_the_memory_is_free_after_the_verb(client):
    x = X.copy()
    gone = weakref.ref(x)
    by_train((x, Y), {})
    del x
    gc.collect()
    assert gone() is None


def test_a_dask_worker_that_can_not_reach_the_client(client, sent, monkeypatch):
    """The rows come by way of the scheduler, in pieces, and stay in none of its tasks."""
    made = client_rows.ServedValues

    class Elsewhere(made):
        def __init__(self, *args):
            super().__init__(*args)
            self.address = f"127.0.0.2:{self.address.partition(':')[2]}"  # where nobody listens

    monkeypatch.setattr(client_rows, "ServedValues", Elsewhere)
    monkeypatch.setattr(client_rows, "REACHED_S", 0.1)
    by_train((X, Y), {})
    assert sum(sent) > X.nbytes


def test_what_a_program_writes_meanwhile_is_not_trained_on(client):
    x, y = X.copy(), Y.copy()
    run = dt.train(total, roles={"worker": 2}, data=(x, y), wait=False, progress=False)
    x[:], y[:] = 0, 0
    np.testing.assert_allclose(sum(run.result().results["worker"]), [X.sum(), Y.sum()])


def test_rows_are_read_again_where_a_dask_worker_dies(client, tmp_path, wait_for):
    """Its segments are gone, too: they are computed again, of the rows that the client still has."""

    def worker(session):
        found = np.zeros(2)
        for number, (x, y) in enumerate(session.batches(epochs=1, batch_size=1000)):
            found += [float(x.sum()), float(y.sum())]
            if session.attempt == 0 and number == 3:
                (tmp_path / "begun").touch()
                session.wait_until_stopped()
        return found

    rows = da.from_array(X, chunks=(3000, WIDTH)), da.from_array(Y, chunks=3000)
    run = dt.train(worker, roles={"worker": 1}, data=rows, wait=False, progress=False)
    wait_for((tmp_path / "begun").exists, "the worker has begun")
    (role,) = run.status()["roles"]
    client.run(lambda: os.kill(os.getpid(), signal.SIGKILL), workers=[role["address"]], on_error="ignore")
    result = run.result(60)
    np.testing.assert_allclose(result.results["worker"][0], [X.sum(), Y.sum()])
    assert (result.ledger.trained, result.ledger.dropped) == (ROWS, 0)


def test_tasks_in_all_threads_compute_rows_of_their_own(client):
    """They leave their threads to the tasks that they wait for."""

    def in_task():
        rows = da.from_array(X, chunks=(7000, WIDTH)), da.from_array(Y, chunks=7000)
        return sum(computed(over_rows(lambda part: float(part[1].sum()), rows)))

    futures = [client.submit(in_task, pure=False) for _ in range(4)]
    totals = [future.result(60) for future in futures]
    assert totals == [pytest.approx(Y.sum())] * 4


@pytest.mark.parametrize("verb", ["publish", "persist"])
@pytest.mark.filterwarnings("ignore:Sending large graph")
def test_what_outlives_the_verb_is_computed_again_of_the_rows_as_they_were(client, wait_for, verb):
    """Also when the client has changed its arrays, and holds none of them."""
    x, y = X.copy(), Y.copy()
    if verb == "publish":
        dt.publish_dataset(x, y, name="rows", progress=False)
        data = dt.get_dataset("rows").to_dask()
    else:
        data = dt.persist(x, y, progress=False)
    x[:], y[:] = 0, 0
    del x, y
    gc.collect()
    assert not dict(client_rows._held)
    before = set(client.scheduler_info()["workers"])
    for address in before:
        client.run(lambda: os.kill(os.getpid(), signal.SIGKILL), workers=[address], on_error="ignore")
    wait_for(lambda: len(set(client.scheduler_info()["workers"]) - before) == 2, "both Dask workers are new")
    try:
        again = [each.compute() for each in data]
        np.testing.assert_array_equal(again[0], X)
        np.testing.assert_array_equal(again[1], Y)
    finally:
        if verb == "publish":
            dt.unpublish_dataset("rows")
