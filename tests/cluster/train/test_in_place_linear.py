"""``fit(recovery="in_place")`` of linear models: a lost worker is replaced, and the other keeps its process."""

from __future__ import annotations

import os
import signal

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

import dask_train as dt
from dask_train import linear_model as ours


def made(client=None):
    """Features that hang together, of which a solver takes many steps, and labels; in shared memory."""
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(20, 20)))[0]
    x = da.random.default_rng(1).normal(size=(200_000, 20), chunks=(50_000, 20)) @ (turned * np.logspace(0, -2, 20))
    return dt.persist(x, (x[:, 0] > 0).astype(int), client=client)


def model(solver):
    return ours.LogisticRegression(solver=solver, C=1e4, tol=1e-9, max_iter=150)


def pids(state):
    return {rank: role["pid"] for (_, rank), role in state.items()}


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize(
    "solver",
    [
        "lbfgs",
        pytest.param("gradient_descent", marks=pytest.mark.slow),
        pytest.param("admm", marks=pytest.mark.nightly),
    ],
)
def test_a_lost_worker_is_replaced_and_the_other_keeps_its_process(client, tmp_path, until, solver, rank):
    rows, whole, found = made(), model(solver), model(solver)
    undisturbed = dt.fit(whole, *rows, workers=2, client=client)
    kept = dt.Checkpoint(tmp_path, every_steps=20, every_s=None)
    run = dt.fit(found, *rows, workers=2, client=client, wait=False, recovery="in_place", checkpoint=kept)
    before = pids(until(run, 5))
    os.kill(before[rank], signal.SIGKILL)
    after = pids(until(run, 20))
    result = run.result()
    assert len(result.attempts) == 2, [attempt.reason for attempt in result.attempts]
    assert [after[each] == before[each] for each in range(2)] == [each != rank for each in range(2)]
    assert (found.coef_.tobytes(), found.n_iter_) == (whole.coef_.tobytes(), whole.n_iter_)
    assert (result.history, result.epoch) == (undisturbed.history, undisturbed.epoch)
    ledger = result.ledger
    assert (ledger.trained, ledger.repeated, ledger.dropped) == (200_000, 0, 0)
    assert "could not continue in place" not in str(result.attempts)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_sparse_rows_are_those_of_the_lost_worker(client, until):
    x, y = made()
    sparse = x.map_blocks(lambda block: scipy.sparse.csr_array(np.where(np.abs(block) > 0.5, block, 0.0)))
    whole, found = model("lbfgs"), model("lbfgs")
    dt.fit(whole, sparse, y, workers=2, client=client)
    run = dt.fit(found, sparse, y, workers=2, client=client, wait=False, recovery="in_place")
    before = pids(until(run, 5))
    os.kill(before[1], signal.SIGKILL)
    assert pids(until(run, 20))[0] == before[0]
    assert len(run.result().attempts) == 2
    assert (found.coef_.tobytes(), found.n_iter_) == (whole.coef_.tobytes(), whole.n_iter_)
