"""What role functions do together, on a cluster: by sum, broadcast and gathering, and when one of them is lost."""

from __future__ import annotations

import os
import signal

import dask.array as da
import numpy as np
import pytest

import dask_train as dt

X = np.arange(60.0).reshape(30, 2)
CHUNKS = (3, 0, 14, 1, 12)


def least_squares(session):
    """The normal equations over all partitions; the address of the first comes to all."""
    gram, address = np.zeros((3, 3)), np.array([f"host of {session.role} {session.rank}"], "U64")
    if session.role == "worker":
        for x, y in session.partitions():
            rows = np.column_stack([x, np.ones(len(x))])
            gram += rows.T @ rows
            assert not x.flags.writeable
            assert (y == x[:, 0]).all()
    large = session.all_reduce(np.full(50_000, session.world_rank, "f4"), op="max")
    ranks = session.all_gather(np.full(session.world_rank, session.world_rank))
    session.barrier()
    return session.all_reduce(gram), str(session.broadcast(address, root=0)[0]), large[0], ranks.tolist()


def test_a_chief_and_workers_sum_what_lies_in_partitions(client):
    def scorer(session):
        with pytest.raises(ValueError, match="scorer 0 takes part in no collective call"):
            session.all_reduce(1)
        return session.world_rank

    data = da.from_array(X, chunks=(CHUNKS, 2)), da.from_array(X[:, 0], chunks=(CHUNKS,))
    functions = {"chief": least_squares, "worker": least_squares, "scorer": scorer}
    result = dt.train(functions, roles={"chief": 1, "worker": 3, "scorer": 1}, data={"worker": data})
    found = result.results["chief"] + result.results["worker"]
    rows = np.column_stack([X, np.ones(len(X))])
    for gram, address, large, ranks in found:
        np.testing.assert_allclose(gram, rows.T @ rows, rtol=1e-12)
        assert gram.tobytes() == found[0][0].tobytes()
        assert (address, large, ranks) == ("host of chief 0", 3.0, [1, 2, 2, 3, 3, 3])
    ledger = result.ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (30, 30, 0, 0)
    assert result.results["scorer"] == [None]


def test_one_that_is_lost_in_a_call_is_a_loss_of_all_and_the_ledger_holds(client):
    def worker(session):
        for step in range(3):
            mine = sum(float(x.sum()) for x in session.partitions())
            if step == 1 and session.rank == 1 and session.attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            total = session.all_reduce(mine)
        return session.attempt, total

    result = dt.train(worker, roles={"worker": 2}, data=da.from_array(X, chunks=(CHUNKS, 2)))
    assert result.results["worker"] == [(1, X.sum())] * 2
    ledger = result.ledger
    assert (ledger.trained, ledger.repeated, ledger.dropped) == (90, 60, 0)


def test_ranks_that_make_other_calls_and_ranks_that_leave_are_errors(client):
    def other_shapes(session):
        session.all_reduce(np.zeros(3 + session.rank))

    def leaves(session):
        if session.rank:
            session.barrier()

    with pytest.raises(
        dt.RoleFailedError,
        match=r"worker (\d) calls .* of float64 \(\d,\), and worker (?!\1)\d calls .* float64 \(\d,\)",
    ):
        dt.train(other_shapes, roles={"worker": 2})
    with pytest.raises(
        dt.RoleFailedError, match="worker 0 has returned, and takes part in no collective call any more"
    ):
        dt.train(leaves, roles={"worker": 2})


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_tensors_come_back_as_tensors(client, framework):
    def worker(session):
        if framework == "torch":
            import torch

            x = torch.full((3,), session.rank + 1.0)
        else:
            import tensorflow as tf

            x = tf.fill((3,), session.rank + 1.0)
        total = session.all_reduce(x)
        return type(total).__module__.partition(".")[0], np.asarray(total).tolist()

    found = dt.train(worker, roles={"worker": 2}, framework=framework).results["worker"]
    assert found == [(framework, [3.0] * 3)] * 2
