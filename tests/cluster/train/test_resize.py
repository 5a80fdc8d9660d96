"""``run.resize`` of ``fit(recovery="in_place")``: workers of a torch module join and leave while it is trained."""

from __future__ import annotations

import os
import signal
from functools import partial

import dask.array as da
import numpy as np
import pytest
import torch
import torchmetrics
from loading import loaded

import dask_train as dt

pytestmark = pytest.mark.usefixtures("metrics_in_templates")

resizing = loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S
doors_of = loaded(__file__, "module_doors")
Doors, Door, resized = doors_of.Doors, doors_of.Door, doors_of.resized

ROWS, BATCH_SIZE, EPOCHS = 173, 16, 3  # 11 steps an epoch; the last batch has 13 rows
STEPS = -(-ROWS // BATCH_SIZE)
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8))
Y = (X @ _random.normal(size=(8, 3))).argmax(1)


class WatchedAdam(torch.optim.AdamW):
    doors = None

    def state_dict(self):
        if self.doors is not None:
            self.doors.pass_by("giving")
        return super().state_dict()


def adam(parameters, doors):
    made = WatchedAdam(parameters, lr=0.02)
    made.doors = doors
    return made


def accuracy(outputs, targets):
    """A metric for clusters of one test, where to import torchmetrics would take longer than to train."""
    return (outputs.argmax(1) == targets).double().mean()


def fitted(client, doors, **settings):
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), Door(doors), torch.nn.Linear(16, 3)).double()
    return dt.fit(
        module,
        da.from_array(X, chunks=(40, 8)),
        da.from_array(Y, chunks=40),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(adam, doors=doors),
        scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5),
        validation_data=(X[:50], Y[:50]),
        validation_batch_size=24,
        **{
            "metrics": {"accuracy": torchmetrics.classification.MulticlassAccuracy(3, average="micro")},
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "workers": 2,
            "seed": 5,
            "client": client,
            "verbose": 0,
            **settings,
        },
    )


@pytest.fixture(scope="module")
def fixed(train_client, tmp_path_factory):
    """The result of a run with a fixed number of workers."""
    return fitted(train_client, Doors(tmp_path_factory.mktemp("fixed")))


def check_same(result, wanted, *, repeats=False):
    for one, other in zip(result.model.state_dict().values(), wanted.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert result.history.keys() == wanted.history.keys()
    for name, values in wanted.history.items():
        np.testing.assert_allclose(result.history[name], values, rtol=1e-9)
    ledger = result.ledger
    assert (ledger.trained, ledger.dropped, ledger.repeated > 0) == (ROWS * EPOCHS, 0, repeats)
    for epoch in range(EPOCHS):
        assert sum(line.trained for line in ledger.lines if line.epoch == epoch) == ROWS


def test_workers_join_and_leave_within_an_epoch_and_the_model_is_that_of_a_fixed_number(
    client, tmp_path, fixed, wait_for
):
    first, last = f"training {STEPS + 3}", f"training {2 * STEPS + 5}"
    doors = Doors(tmp_path, first, f"validation {2 * STEPS}", last)
    run = fitted(client, doors, recovery="in_place", wait=False)
    resized(run, doors, first, 4, wait_for)
    before = resizing.pids(run)
    with pytest.raises(dt.PlacementError, match="continues with 4 workers, and not with 5") as refused:
        run.resize(5)
    assert "1 role needs a free thread, and 0 of 4 are free" in str(refused.value)
    run.resize(4)
    resized(run, doors, f"validation {2 * STEPS}", 3, wait_for)
    resized(run, doors, last, 2, wait_for)
    assert [resizing.pids(run)[rank] for rank in range(2)] == [before[rank] for rank in range(2)]
    result = run.result()
    check_same(result, fixed)
    shares = {(line.rank, line.epoch): line.trained for line in result.ledger.lines}
    assert shares.keys() == {(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (1, 2), (2, 2)}
    assert (len(result.attempts), result.notices) == (1, [])
    with pytest.raises(dt.ClosedError, match="is over"):
        run.resize(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills",
    [
        ["0 training"],
        ["1 now", "3 training"],
        *(pytest.param([kill], marks=pytest.mark.nightly) for kill in ("1 now", "0 giving", "2 now", "2 training")),
    ],
)
def test_workers_that_are_lost_while_others_join_are_replaced(client, tmp_path, fixed, wait_for, kills):
    door = f"training {STEPS + 3}"
    doors = Doors(tmp_path, door)
    run = fitted(client, doors, recovery="in_place", wait=False)
    resized(run, doors, door, 4, wait_for, *kills)
    result = run.result()
    assert len(result.attempts) == 1 + len(kills), [attempt.reason for attempt in result.attempts]
    check_same(result, fixed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills", [["0 training"], ["1 now", "2 now"], pytest.param(["2 now"], marks=pytest.mark.nightly)]
)
def test_workers_that_are_lost_while_others_leave_are_replaced(client, tmp_path, fixed, wait_for, kills):
    first, last = "training 2", f"training {STEPS + 5}"
    doors = Doors(tmp_path, first, last)
    run = fitted(client, doors, recovery="in_place", wait=False)
    resized(run, doors, first, 3, wait_for)
    resized(run, doors, last, 2, wait_for, *kills)
    result = run.result()
    assert len(result.attempts) == 1 + len(kills), [attempt.reason for attempt in result.attempts]
    check_same(result, fixed)


@pytest.mark.slow
def test_all_start_again_in_the_new_number_from_a_checkpoint_of_the_old_one(client, tmp_path, fixed, wait_for):
    door, other = "training 5", "training 7"
    doors = Doors(tmp_path, door, other)
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=3, best="val_loss")  # which the first worker alone knows
    run = fitted(client, doors, recovery="in_place", checkpoint=kept, wait=False)
    resized(run, doors, door, 3, wait_for)
    wait_for(lambda: doors.waits(other), "the first worker waits", timeout_s=WAIT_S)
    os.kill(resizing.pids(run)[0], signal.SIGKILL)
    doors.opened(other)
    result = run.result()
    assert "which knew the best checkpoint" in result.attempts[1].reason
    assert len(result.attempts) == 3
    check_same(result, fixed, repeats=True)


def test_other_runs_keep_their_number_of_workers(client, tmp_path):
    doors = Doors(tmp_path)
    run = fitted(client, doors, wait=False)
    with pytest.raises(ValueError, match="keeps its number of workers"):
        run.resize(3)
    run.stop()
    run = fitted(client, doors, recovery="in_place", wait=False)
    for workers, why in ((1, "continues with at least 2"), (BATCH_SIZE + 1, "is the global batch, and 17 workers")):
        with pytest.raises(ValueError, match=why):
            run.resize(workers)
    with pytest.raises(TypeError, match="workers is '3'"):
        run.resize("3")
    run.stop()
