"""Checkpoints in an object store whose credentials are passed, and stand nowhere else."""

from __future__ import annotations

import fsspec
import numpy as np
import pytest
from distributed import Client

import dask_train as dt

BUCKET = "s3://dask-train"


@pytest.fixture
def given(s3_server, local_clusters, monkeypatch):
    """What logs in to the server, of which neither this process nor the Dask workers know from their environment."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    options = {"key": "user-1234", "secret": "hidden-1234", "client_kwargs": {"endpoint_url": s3_server}}
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=1)) as client:
        yield options, client


def test_checkpoints_with_credentials_that_are_passed(given):
    options, client = given

    def worker(session):
        kept = session.load_checkpoint()
        if kept is not None:
            return float(np.load(kept / "state.npy"))
        session.save_checkpoint(lambda folder: np.save(folder / "state.npy", np.array(3.0)))
        return None

    where = dt.Checkpoint(f"{BUCKET}/given", storage_options=options)
    first = dt.train(worker, roles={"worker": 1}, checkpoint=where, client=client)
    again = dt.train(worker, roles={"worker": 1}, checkpoint=where, resume=True, client=client)
    assert (first.results["worker"], again.results["worker"]) == ([None], [3.0])
    system = fsspec.filesystem("s3", **options)
    system.invalidate_cache()
    kept = [name for name in system.find(f"{BUCKET}/given") if "/run-" not in name]  # claims are being removed
    stored = b"".join(map(system.cat_file, kept))
    shown = f"{stored!r} {again!r} {vars(again)}"
    assert "hidden-1234" not in shown
    assert "user-1234" not in shown
