"""Object stores whose credentials are passed, and stand nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from distributed import Client

import dask_train as dt


@pytest.fixture(scope="module")
def client(store, local_clusters):
    """Of a Dask worker that, as this process, knows nothing of the store from its environment."""
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=1)) as client:
        yield client


def test_checkpoints_with_credentials_that_are_passed(store, client):

    def worker(session):
        kept = session.load_checkpoint()
        if kept is not None:
            return float(np.load(kept / "state.npy"))
        session.save_checkpoint(lambda folder: np.save(folder / "state.npy", np.array(3.0)))
        return None

    where = dt.Checkpoint(f"{store.url}/given", storage_options=store.options)
    first = dt.train(worker, roles={"worker": 1}, checkpoint=where, client=client)
    again = dt.train(worker, roles={"worker": 1}, checkpoint=where, resume=True, client=client)
    assert (first.results["worker"], again.results["worker"]) == ([None], [3.0])
    kept = [name for name in store.system.find(f"{store.url}/given") if "/run-" not in name]  # claims are being removed
    stored = b"".join(map(store.system.cat_file, kept))
    shown = f"{stored!r} {again!r} {vars(again)}"
    assert [secret for secret in store.secrets if secret in shown] == []
