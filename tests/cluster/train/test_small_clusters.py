"""Runs on clusters of one, in the client's own process, and with clients that are asynchronous."""

from __future__ import annotations

import asyncio

import dask.array as da
import numpy as np
from distributed import Client

import dask_train as dt


def test_an_asynchronous_client(no_leaks):
    async def main():
        async with Client(
            processes=False, n_workers=1, threads_per_worker=2, asynchronous=True, dashboard_address=":0"
        ):
            run = await dt.train(count, roles={"worker": 2}, wait=False)
            scores = [score["n"] async for score in run.scores()]
            assert sorted(scores) == [0, 0, 1, 1]
            assert (await run.result()).results == {"worker": [2, 2]}
            assert "worker 1] counted" in await run.logs()
            return (await dt.train(count, roles={"worker": 1})).results

    with no_leaks():
        assert asyncio.run(main()) == {"worker": [2]}


def count(session):
    for n in range(2):
        session.report(n=n)
    print("counted")
    return 2


def test_four_roles_share_a_small_cluster_and_say_so(make_cluster, capfd):
    with Client(make_cluster(n_workers=1, threads_per_worker=2)):
        assert dt.train(lambda session: session.size, roles={"worker": 4}).results == {"worker": [4] * 4}
    assert "4 roles share 2 threads of the Dask cluster" in capfd.readouterr().err


class Scaled:
    """Multiplies rows by the first of weights that take more than 1 MiB."""

    def __init__(self):
        self.weights = np.ones(1 << 18)

    def predict(self, x):
        return x[:, 0] * self.weights[0]


def test_a_large_model_stays_as_it_was_predicted_with_in_the_clients_process(no_leaks):
    """The Dask worker in this process has a copy of it, also under the token of before."""
    model, rows = Scaled(), da.ones((4, 2), chunks=(2, 2))
    with no_leaks(), Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        assert client.scheduler.address.startswith("inproc://")
        before = dt.predict(model, rows)
        model.weights[:] = 2
        assert before.compute().tolist() == [1] * 4
        assert dt.predict(model, rows).compute().tolist() == [2] * 4
        model.weights[:] = 1
        assert dt.predict(model, rows).compute().tolist() == [1] * 4
