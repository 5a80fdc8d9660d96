"""A scheduler in a process of its own, in which dask-train can't be imported; at last it dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, get_worker
from sklearn.linear_model import LinearRegression

import dask_train as dt


@pytest.fixture
def apart(tmp_path, dask_process, hide_module, no_leaks):
    """A client of two ``dask worker``, and the ``dask scheduler`` process."""
    (tmp_path / "hidden").mkdir()
    hide_module("dask_train", tmp_path / "hidden")
    file = str(tmp_path / "scheduler.json")
    # A client looks that long for a scheduler that is gone.
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}), no_leaks(), ExitStack() as stack:
        scheduler = stack.enter_context(
            dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=tmp_path / "hidden")
        )
        for name in ("a", "b"):
            options = ["--scheduler-file", file, "--nthreads", "1", "--name", name, "--death-timeout", "60"]
            stack.enter_context(dask_process("worker", *options, "--local-directory", str(tmp_path), path=tmp_path))
        client = Client(scheduler_file=file)
        try:
            client.wait_for_workers(2, timeout=60)
            yield client, scheduler
        finally:
            # A client that closes itself, because its scheduler is gone, may trip over a timeout that expires just then
            # (seen with distributed 2026.8.0).
            with suppress(RuntimeError):
                client.close()


def import_dask_train():
    import dask_train

    return dask_train.__version__


def score(name):
    batch = get_worker().tensorflow_queue.get(timeout=30)
    dt.board(name).append(float(batch.sum()))
    return get_worker().tensorflow_queue.get()


def see_predictions(client, folder):
    table = np.random.default_rng(1).random((60, 3))
    x, sums = da.from_array(table, chunks=(20, 3)), table.sum(axis=1)
    regression = LinearRegression().fit(table, sums)
    np.testing.assert_allclose(dt.predict(regression, x, client=client).compute(), sums)
    both = dt.predict(lambda x: (x, x + 1), x, client=client)
    np.testing.assert_allclose(both[1].compute(), table + 1)
    frame = dd.from_pandas(pd.DataFrame(table), npartitions=3)
    np.testing.assert_allclose(dt.predict(lambda part: part.sum(axis=1), frame, client=client).compute(), sums)
    assert dt.evaluate(regression, x, sums, client=client) == {"r2": pytest.approx(1.0)}
    assert dt.predict_to(folder, regression, x, client=client).num_written == 3


def test_a_scheduler_without_dask_train_that_dies(apart, without_tensorflow, state, workers, tmp_path):
    client, scheduler = apart
    with pytest.raises(ModuleNotFoundError, match="dask_train"):
        client.run_on_scheduler(import_dask_train)
    see_predictions(client, tmp_path / "predictions")

    scores = dt.board("scores", client=client)
    with dt.start_tensorflow(client, worker=1, ps=1) as net:
        data = client.scatter([np.ones(3), np.zeros(3)], hash=False, workers=net.dask_spec["worker"])
        roles = net.submit("worker", score, "scores")
        net.feed(data[:1], to="worker").wait(60)
        scores.wait_until(lambda s: s[-1] == 3.0, 30)
    with pytest.raises(dt.ClosedError, match=f"Network {net.id} was closed"):
        roles[0].result(timeout=60)
    np.testing.assert_array_equal(client.gather(data), [np.ones(3), np.zeros(3)])
    assert state(client) == {"networks": {}, "feeds": (), "boards": {"scores": 1}, "runs": ()}

    net = dt.start_tensorflow(client, worker=1)
    roles = net.submit("worker", score, "scores")
    # Dask ends a Dask worker that is told to retire, and does not replace it
    client.retire_workers(net.dask_spec["worker"])
    text = rf"worker 0 of network {net.id} is gone: its Dask worker {net.dask_spec['worker'][0]} left the cluster\."
    for lost in (roles[0].result, net.wait_lost):
        with pytest.raises(dt.RoleLostError, match=text):
            lost(30)
    net.close()

    net = dt.start_tensorflow(client, worker=1)
    roles = net.submit("worker", score, "scores")
    feed = net.feed([client.submit(np.ones, 3, workers=["nobody"], allow_other_workers=False)], to="worker")
    text = r"The Dask scheduler did not answer train_\w+ to Client-.* It has been closed, or its connection is gone"
    with ThreadPoolExecutor(3) as pool:
        waits = [
            pool.submit(scores.wait_until, lambda s: len(s) == 9),
            pool.submit(feed.wait),
            pool.submit(net.wait_lost),
        ]
        scheduler.kill()
        for waiting in waits:
            with pytest.raises(
                dt.RoleLostError, match=r"The Dask scheduler did not answer train_\w+ to Client-.* closed"
            ):
                waiting.result(60)
    with pytest.raises(dt.RoleLostError, match="The Dask scheduler did not answer train_board_append"):
        scores.append(1)
