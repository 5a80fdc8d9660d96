"""``fit(virtual_workers=...)`` of torch modules: the same bits for any number of workers, whatever happens."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

import dask.array as da
import numpy as np
import pytest
import torch
import torchmetrics
from loading import loaded

import dask_train as dt
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint

pytestmark = pytest.mark.usefixtures("metrics_in_templates")

resizing = loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S
doors_of = loaded(__file__, "module_doors")
Doors, Door, resized = doors_of.Doors, doors_of.Door, doors_of.resized

ROWS, BATCH_SIZE, EPOCHS, SHARES = 173, 16, 2, 4  # 11 steps an epoch; the last batch has 13 rows
STEPS = -(-ROWS // BATCH_SIZE)
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8)).astype("float32")
Y = (X @ _random.normal(size=(8, 3))).argmax(1)


class Noise(torch.nn.Module):
    """Draws random numbers of NumPy's and Python's."""

    def forward(self, x):
        return x * np.random.uniform(0.9, 1.1) + random.gauss(0, 0.1) if self.training else x


def bits(value):
    """A state, without the identities of its objects."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, list | tuple) else value


class Fit:
    """A fit, whose outcome is compared with others."""

    def __init__(self, client, doors=None, **settings):
        torch.manual_seed(3)
        layers = [torch.nn.Linear(8, 33), torch.nn.BatchNorm1d(33), torch.nn.ReLU(), torch.nn.Dropout(0.3), Noise()]
        self.module = torch.nn.Sequential(*layers, *([Door(doors)] if doors else [torch.nn.Identity()]))
        self.module.append(torch.nn.Linear(33, 3))
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=0.02)
        self.found = dt.fit(
            self.module,
            da.from_array(X, chunks=(40, 8)),
            da.from_array(Y, chunks=40),
            optimizer=self.optimizer,
            scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5),
            validation_data=(X[:50], Y[:50]),
            validation_batch_size=24,
            **{
                "epochs": EPOCHS,
                "batch_size": BATCH_SIZE,
                "seed": 5,
                "client": client,
                "verbose": 0,
                "loss": torch.nn.CrossEntropyLoss(),
                "virtual_workers": SHARES,
                **settings,
            },
        )

    def outcome(self):
        """All that has to have the same bits; of the ledger, that each row was trained on once in each epoch."""
        result = self.found.result() if hasattr(self.found, "status") else self.found
        ledger = result.ledger
        assert (ledger.trained, ledger.dropped) == (ROWS * EPOCHS, 0)
        for epoch in range(EPOCHS):
            assert sum(line.trained for line in ledger.lines if line.epoch == epoch) == ROWS
        return bits(self.module.state_dict()), bits(self.optimizer.state_dict()), result.history


@pytest.fixture(scope="module")
def alone(train_client):
    """The outcome of a fit in this process."""
    return Fit(train_client, workers=0).outcome()


def test_two_and_three_workers_train_to_the_bits_of_this_process(client, alone):
    assert Fit(client, workers=2).outcome() == alone
    assert Fit(client, workers=3).outcome() == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", ["of all rows", *(pytest.param(loss, marks=pytest.mark.nightly) for loss in ("by rows", "weighted"))]
)
def test_losses_and_metrics_have_the_same_bits_on_any_number_of_workers(client, loss):
    def with_penalty(outputs, y):
        apart = torch.cdist(outputs, outputs).mean()  # which compares rows
        noise = torch.rand(len(y))
        return (torch.nn.functional.cross_entropy(outputs, y, reduction="none") * noise).sum() + 0.1 * apart

    accuracy = torchmetrics.classification.MulticlassAccuracy(3, average="micro")
    settings = {
        "by rows": {},
        "of all rows": {"loss": with_penalty, "metrics": {"accuracy": accuracy}},
        "weighted": {"sample_weight": da.from_array(_random.random(ROWS), chunks=40)},
    }[loss]
    outcomes = [Fit(client, workers=workers, **settings).outcome() for workers in (0, 1, 2, 3, 4)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_lost_worker_is_replaced_in_place(client, tmp_path, alone, wait_for, rank):
    door = f"training {STEPS + 3}"
    doors = Doors(tmp_path, door)
    fit = Fit(client, doors, workers=3, recovery="in_place", wait=False)
    wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=WAIT_S)
    doors.kills(f"{rank} training")
    doors.opened(door)
    assert fit.outcome() == alone
    assert len(fit.found.result().attempts) == 2


@pytest.mark.slow
def test_all_start_again_from_a_checkpoint(client, tmp_path, alone, wait_for):
    door = f"training {STEPS + 6}"
    doors = Doors(tmp_path, door)
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=3)
    fit = Fit(client, doors, workers=2, checkpoint=kept, wait=False)
    wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=WAIT_S)
    os.kill(resizing.pids(fit.found)[1], signal.SIGKILL)
    doors.opened(door)
    assert fit.outcome() == alone
    assert len(fit.found.result().attempts) == 2


def is_within_epoch(folder):
    """Whether the last checkpoint in a folder is one within an epoch."""
    names = sorted(path for path in folder.glob("checkpoint-*") if path.is_dir())
    with suppress(OSError, dt.CheckpointError):  # it is being written
        return bool(names) and FitCheckpoint.load(names[-1]).batch > 0
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "resumed"), [(2, 3), pytest.param(4, 0, marks=pytest.mark.nightly)])
def test_a_checkpoint_is_resumed_by_another_number_of_workers(client, tmp_path, alone, wait_for, workers, resumed):
    door = f"training {STEPS + 6}"
    doors = Doors(tmp_path, door)
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=3)
    fit = Fit(client, doors, workers=workers, checkpoint=kept, recovery=None, wait=False)
    wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=WAIT_S)
    wait_for(lambda: is_within_epoch(tmp_path / "kept"), "a checkpoint within an epoch", timeout_s=WAIT_S)
    os.kill(resizing.pids(fit.found)[1], signal.SIGKILL)
    with pytest.raises(dt.RoleLostError):
        fit.found.result()
    with pytest.raises(dt.RoleFailedError if resumed else dt.CheckpointError, match="virtual_workers was 4, and is 5"):
        Fit(client, workers=resumed, checkpoint=kept, resume=True, virtual_workers=5)
    assert Fit(client, workers=resumed, checkpoint=kept, resume=True).outcome() == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills",
    [["1 training"], *(pytest.param(kills, marks=pytest.mark.nightly) for kills in ([], ["3 training"]))],
    ids=str,
)
def test_workers_join_and_leave(client, tmp_path, alone, wait_for, kills):
    first, last = "training 3", f"training {STEPS + 5}"
    doors = Doors(tmp_path, first, last)
    fit = Fit(client, doors, workers=2, recovery="in_place", wait=False)
    resized(fit.found, doors, first, 4, wait_for, *kills)
    with pytest.raises(ValueError, match="virtual_workers=4 is the number of shares of a batch, and 5 workers"):
        fit.found.resize(5)
    resized(fit.found, doors, last, 2, wait_for)
    assert fit.outcome() == alone
    result = fit.found.result()
    assert {line.rank for line in result.ledger.lines if line.epoch == 0} == set(range(4))
    assert (len(result.attempts), result.notices) == (1 + len(kills), [])
