"""The client that is passed is the one that is used, whatever the default one is; and clusters that are yet to grow."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, default_client

import dask_train as dt
from dask_train.shared_data.described import check_computed


@pytest.fixture
def stranger(local_clusters):
    """A client of a cluster of one Dask worker that is nobody's default."""
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=2), set_as_default=False) as client:
        with pytest.raises(ValueError, match="No clients found"):
            default_client()
        yield client


def num_rows(session):
    return sum(len(batch) for batch in session.batches(batch_size=10))


def num_rows_of(session):
    return session.dataset("x").num_rows


def test_every_verb_uses_the_client_that_is_passed(stranger):
    x = da.random.random((100, 3), chunks=(50, 3))
    how = {"roles": {"worker": 1}, "client": stranger, "progress": False}
    for data in (x, np.ones((100, 3)), dt.persist(x, client=stranger), stranger.persist(x)):
        assert dt.train(num_rows, data=data, **how).results["worker"] == [100]
    assert dt.train(num_rows, data=x, streaming=True, **how).results["worker"] == [100]
    assert dt.train(num_rows_of, datasets={"x": x}, **how).results["worker"] == [100]
    dt.publish_dataset(x, name="x", client=stranger)
    assert dt.train(num_rows_of, **how).results["worker"] == [100]
    assert dt.get_dataset("x", client=stranger).to_numpy().shape == (100, 3)
    assert list(dt.list_datasets(client=stranger)) == ["x"]
    dt.unpublish_dataset("x", client=stranger)
    sums = dt.predict(lambda rows: rows.sum(axis=1), x, client=stranger)
    assert stranger.compute(sums).result().shape == (100,)


@pytest.mark.slow
def test_keras_verbs_use_the_client_that_is_passed(stranger):
    import keras

    x, y = da.random.random((40, 3), chunks=(20, 3)), da.random.random((40, 1), chunks=(20, 1))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    fitted = dt.fit(model, x, y, epochs=1, validation_data=(x, y), client=stranger, verbose=0)
    assert set(fitted.history) == {"loss", "val_loss"}
    assert dt.evaluate(model, x, y, client=stranger)["loss"] == pytest.approx(fitted.history["val_loss"][0], rel=1e-4)


def verbs_in_a_task(folder):
    """Called in a Dask task: every verb, without a client; the places where roles ran, and what came of it."""
    from sklearn.linear_model import LinearRegression

    x = da.random.random((100, 3), chunks=(50, 3))
    fitted = LinearRegression().fit(np.eye(3), np.ones(3))
    run = dt.train(num_rows, roles={"worker": 1}, data=x, wait=False)
    for score in run.scores():
        raise AssertionError(score)
    result = run.result()
    persisted = dt.persist(x)
    dt.publish_dataset(persisted, name="of a task")
    named = dt.train(num_rows, roles={"worker": 1}, data=dt.get_dataset("of a task"))
    names = dt.list_datasets()
    dt.unpublish_dataset("of a task")
    dt.board("of a task").append(1)
    return {
        "places": {*result.attempts[0].places.values(), *named.attempts[0].places.values()},
        "rows": [*result.results["worker"], *named.results["worker"]],
        "names": list(names),
        "predicted": dt.predict(fitted, x).compute().shape,
        "files": dt.predict_to(folder, fitted, x).num_rows,
        "r2": set(dt.evaluate(fitted, x, x.sum(axis=1), verbose=1)),
    }


def test_every_verb_takes_the_client_of_the_task_that_calls_it_and_lends_its_thread(local_clusters, tmp_path):
    """The only thread of the cluster is the task's, so whatever kept it would wait for ever."""
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=1), set_as_default=False) as client:
        told = client.submit(verbs_in_a_task, str(tmp_path / "predicted"), pure=False).result(timeout=120)
        (place,) = client.nthreads()
        assert told == {
            "places": {place},
            "rows": [100, 100],
            "names": ["of a task"],
            "predicted": (100,),
            "files": 100,
            "r2": {"r2"},
        }
        assert list(dt.board("of a task", client=client)) == [1]
        dt.board("of a task", client=client).delete()


def keras_verbs_in_a_task():
    """As :func:`verbs_in_a_task`, of those that need a framework."""
    import keras

    def build(trial=None):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1 if trial is None else trial.suggest_float("rate", 0.01, 0.1)), "mse")
        return model

    x = da.random.random((40, 3), chunks=(20, 3))
    fitted = dt.fit(build(), x, x.sum(axis=1), epochs=1, verbose=0)
    found = dt.search(build, x, x.sum(axis=1), metric="loss", direction="minimize", trials=2, epochs=1, progress=False)
    with dt.start_tensorflow(worker=1, leave_servers=True) as network:
        return {*fitted.attempts[0].places.values(), *network.dask_spec["worker"]}, len(found.trials)


def test_keras_verbs_take_the_client_of_the_task_that_calls_them(local_clusters):
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=1), set_as_default=False) as client:
        places, num_trials = client.submit(keras_verbs_in_a_task, pure=False).result(timeout=150)
        assert (places, num_trials) == (set(client.nthreads()), 2)


def test_data_may_come_before_the_first_dask_worker(local_clusters, wait_for):
    with local_clusters() as make, Client(cluster := make(n_workers=0, threads_per_worker=2)):
        threading.Timer(0.5, cluster.scale, [1]).start()
        result = dt.train(num_rows, roles={"worker": 1}, data=np.ones((10, 2)), progress=False)
        assert result.results["worker"] == [10]
        cluster.scale(0)
        wait_for(lambda: not cluster.scheduler.workers, "no Dask worker is left")
        threading.Timer(0.5, cluster.scale, [2]).start()
        assert dt.train(lambda _: 1, progress=False).results["worker"] in ([1], [1, 1])
        cluster.scale(0)
        wait_for(lambda: not cluster.scheduler.workers, "no Dask worker is left")
        with (
            dask.config.set({"train.placement.timeout": "1s"}),
            pytest.raises(dt.PlacementError, match="No Dask worker has come within 1 s"),
        ):
            dt.train(lambda _: 1, progress=False)


def test_a_partition_that_is_lost_for_a_moment_is_waited_for(stranger):
    """As the client calls it while Dask computes it again, since the Dask worker that had it has died."""
    future = stranger.submit(int, 1)
    assert future.result() == 1
    future._state.lose()
    stranger.sync(check_computed, future, "data")
    forgotten = stranger.submit(int, 2)
    assert forgotten.result() == 2
    stranger.cancel([forgotten])
    forgotten._state.lose()
    with pytest.raises(dt.DataError, match="A partition of data is lost, and can't be computed again"):
        stranger.sync(check_computed, forgotten, "data")
