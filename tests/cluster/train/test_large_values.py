"""Functions and results with large arrays: through shared memory where roles reach the client's, else in messages."""

from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.driver import dispatch

LARGE = np.arange(1 << 20)


@pytest.mark.parametrize("reaches", [True, False], ids=["mapped", "sent"])
def test_each_role_has_the_arrays_of_its_function_for_itself_and_returns_large_ones(client, monkeypatch, reaches):
    if not reaches:
        monkeypatch.setattr(dispatch, "REACH_S", 0.0)  # no Dask worker answers in time

    few_here = np.zeros(3)

    def worker(session, given=LARGE):
        few = few_here
        if session.rank == 1 and session.attempt == 0:
            given[:] = -1
            os.kill(os.getpid(), signal.SIGKILL)
        before = given.sum()
        given += session.rank
        few += session.rank
        return {"before": before, "attempt": session.attempt, "large": given, "few": few}

    run = dt.train(worker, roles={"worker": 2}, recovery="role", wait=False)
    again = [run.result().results["worker"] for _ in range(2)]
    for rank, found in enumerate(again[0]):
        assert (found["before"], found["attempt"]) == (LARGE.sum(), rank)
        assert (found["large"] == LARGE + rank).all()
        assert found["few"].tolist() == [rank] * 3
        found["large"][:] = 0
        assert (again[1][rank]["large"] == LARGE + rank).all(), "what was asked for twice is there twice"
    assert (np.arange(1 << 20) == LARGE).all(), "nothing changes here"


def wide(hidden: int = 8192) -> torch.nn.Module:
    """A module of 100 million weights."""
    torch.manual_seed(0)
    n = torch.nn
    return n.Sequential(
        n.Linear(hidden // 2, hidden), n.ReLU(), n.Linear(hidden, hidden), n.ReLU(), n.Linear(hidden, 10)
    )


@pytest.mark.slow
def test_a_module_of_100_million_weights_goes_on_with_a_checkpoint_after_a_kill_and_in_another_run(client, tmp_path):
    random = np.random.default_rng(0)
    x, y = random.random((32, 4096), np.float32), random.integers(0, 10, 32)
    fit = partial(
        dt.fit, x=x, y=y, loss=torch.nn.CrossEntropyLoss(), optimizer=partial(torch.optim.SGD, lr=1e-3), batch_size=16
    )
    whole, module = wide(), wide()
    expected = fit(whole, epochs=3, workers=2).history
    run = fit(module, epochs=2, workers=2, checkpoint=dt.Checkpoint(tmp_path / "c", every_steps=1), wait=False)
    for score in run.scores():
        if score.get("epoch") == 0 and score["attempt"] == 0:
            os.kill(run.status()["roles"][1]["pid"], signal.SIGKILL)
            break
    assert run.result().history["loss"] == expected["loss"][:2]
    result = fit(module, epochs=3, workers=2, checkpoint=dt.Checkpoint(tmp_path / "c", every_steps=1), resume=True)
    assert result.history["loss"] == expected["loss"]
    assert all(map(torch.equal, whole.parameters(), module.parameters()))
