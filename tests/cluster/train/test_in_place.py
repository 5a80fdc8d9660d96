"""``fit(recovery="in_place")``: lost workers of torch modules are replaced, and the others keep their processes."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import torchmetrics

import dask_train as dt
from dask_train.collectives import formation

pytestmark = pytest.mark.usefixtures("metrics_in_templates")

ROWS, BATCH_SIZE, EPOCHS = 173, 16, 3  # 11 steps an epoch; the last batch has 13 rows
STEPS = -(-ROWS // BATCH_SIZE)
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8))
Y = (X @ _random.normal(size=(8, 3))).argmax(1)


def own_rank():
    """Of the worker in whose step this is called; None in the client, which tries a module before it is trained."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "fit_module_synchronously":
        frame = frame.f_back
    return None if frame is None else frame.f_locals["session"].rank


class Fate:
    """Ends the processes of these workers when they have come so often to a point; each once.

    Parameters
    ----------
    folder
        Where is noted who was there, and who has ended.
    losses
        ``(rank, point, count)``; a count is of all calls that a process has made. At the point ``"meeting"`` a process
        ends when it next meets the others, after so many steps.
    by
        The signal that ends it, or a function that does, and does not return.
    """

    def __init__(self, folder, *losses, by=signal.SIGKILL):
        self.folder, self.losses, self.by, self.counts = Path(folder), losses, by, {}
        self.folder.mkdir(exist_ok=True)

    def at(self, point):
        if (rank := own_rank()) is None:
            return
        self.counts[point] = self.counts.get(point, 0) + 1
        (self.folder / f"{rank}-{os.getpid()}").touch()
        for loss in self.losses:
            mark = self.folder / "lost {} {} {}".format(*loss)
            if mark.exists():
                continue
            if loss == (rank, point, self.counts[point]):
                end(mark, self.by)
            if (*loss, "training") == (rank, "meeting", self.counts[point], point):
                formation.meet = lambda *_, mark=mark: end(mark)

    @property
    def processes(self):
        """How many there were of each rank."""
        names = [path.name.split("-")[0] for path in self.folder.iterdir() if path.name[0].isdigit()]
        return [names.count(str(rank)) for rank in range(max(3, *(1 + int(name) for name in names)))]

    @property
    def num_lost(self):
        return len(list(self.folder.glob("lost*")))


def end(mark, by=signal.SIGKILL):
    mark.touch()
    if callable(by):
        by()
    os.kill(os.getpid(), by)


class Fated(torch.nn.Module):
    def __init__(self, fate):
        super().__init__()
        self.fate = fate

    def forward(self, x):
        if len(x) > 3:  # a trial is of less rows
            self.fate.at("training" if self.training else "validation")
        return x


class FatedAdam(torch.optim.AdamW):
    fate = None

    def step(self, closure=None):
        super().step(closure)
        self.fate.at("optimizer")


class FatedSchedule(torch.optim.lr_scheduler.StepLR):
    def __init__(self, optimizer, fate):
        self.fate = None
        super().__init__(optimizer, step_size=1, gamma=0.5)
        self.fate = fate

    def step(self, epoch=None):
        super().step(epoch)
        if self.fate is not None:
            self.fate.at("schedule")

    def state_dict(self):
        return {name: value for name, value in super().state_dict().items() if name != "fate"}


def adam(parameters, fate):
    made = FatedAdam(parameters, lr=0.02)
    made.fate = fate
    return made


class Fading(torch.nn.Module):
    """Changes a parameter that is not trained with each batch."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.scale *= 0.99
        return x * self.scale


def fitted(client, fate, data=None, more=(), **settings):
    torch.manual_seed(3)
    data = data or (da.from_array(X, chunks=(40, 8)), da.from_array(Y, chunks=40))
    between = torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), Fated(fate), *more
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), *between, torch.nn.Linear(16, 3)).double()
    return dt.fit(
        module,
        *data,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(adam, fate=fate),
        scheduler=partial(FatedSchedule, fate=fate),
        validation_batch_size=24,
        **{
            "metrics": {"accuracy": torchmetrics.classification.MulticlassAccuracy(3, average="micro")},
            "validation_data": (X[:50], Y[:50]),
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "workers": 3,
            "seed": 5,
            "client": client,
            "verbose": 0,
            **settings,
        },
    )


@pytest.fixture(scope="module")
def undisturbed(train_client, tmp_path_factory):
    """The result of a run without a loss."""
    return fitted(train_client, Fate(tmp_path_factory.mktemp("whole") / "fate"))


def check_same(result, wanted, repeats=False):
    for one, other in zip(result.model.state_dict().values(), wanted.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert (result.history, result.epoch) == (wanted.history, wanted.epoch)
    assert (result.ledger.trained, result.ledger.dropped) == (wanted.ledger.trained, wanted.ledger.dropped)
    assert (result.ledger.repeated > 0) == repeats


MOMENTS = [
    ("training", 1),
    ("training", STEPS + 5),
    ("optimizer", STEPS + 5),
    ("training", STEPS + 1),
    ("validation", 4),
    ("schedule", 2),
    ("optimizer", STEPS * EPOCHS),
    ("training", STEPS * EPOCHS),
    ("schedule", EPOCHS),
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_lost_worker_is_replaced_and_the_others_keep_their_processes(client, tmp_path, undisturbed, rank, moment):
    fate = Fate(tmp_path / "fate", (rank, *moment))
    result = fitted(client, fate, recovery="in_place", checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=3))
    assert (fate.num_lost, len(result.attempts)) == (1, 2), [attempt.reason for attempt in result.attempts]
    check_same(result, undisturbed)
    assert fate.processes == [1 + (each == rank) for each in range(3)]


@pytest.mark.slow
def test_what_calls_of_a_module_change_is_changed_once(client, tmp_path):
    """The others wait for the newcomer in a step whose calls they have made; they look for differences at its end."""
    fate, wanted = Fate(tmp_path / "fate", (1, "training", STEPS + 5)), Fading().double()
    result = fitted(client, fate, more=[Fading()], recovery="in_place")
    assert fate.processes == [1, 2, 1]
    for _ in range(STEPS * EPOCHS):
        wanted(torch.zeros(1))
    assert torch.equal(result.model[-2].scale, wanted.scale)


@pytest.mark.slow
@pytest.mark.parametrize(
    "losses",
    [
        [(0, "training", 9), (1, "training", 9)],
        [(1, "training", 9), (2, "optimizer", 9), (1, "training", 12)],
    ],
    ids=["two at once", "one after the other"],
)
def test_several_lost_workers_are_replaced(client, tmp_path, undisturbed, losses):
    fate = Fate(tmp_path / "fate", *losses)
    policy = dt.RecoveryPolicy(scope="in_place", max_restarts=5)
    result = fitted(client, fate, recovery=policy)
    assert fate.num_lost == len(losses)
    check_same(result, undisturbed)
    assert fate.processes == [1 + sum(rank == each for rank, *_ in losses) for each in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recovery", "processes"),
    [("in_place", [1, 2, 1]), pytest.param("gang", [2, 2, 2], marks=pytest.mark.nightly)],
)
def test_a_worker_that_a_signal_has_stopped_is_ended_and_another_one_continues(
    client, tmp_path, undisturbed, recovery, processes
):
    fate = Fate(tmp_path / "fate", (1, "training", 9), by=signal.SIGSTOP)
    with dask.config.set({"train.progress.timeout": "30s"}):
        result = fitted(client, fate, recovery=recovery)
    assert fate.num_lost == 1
    assert result.attempts[0].reason.startswith("worker 1 is lost: its process")
    check_same(result, undisturbed, repeats=recovery == "gang")
    assert fate.processes == processes


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_who_is_lost_while_all_meet_is_replaced_too_and_not_waited_for(client, tmp_path, undisturbed, rank):
    fate = Fate(tmp_path / "fate", (rank, "meeting", 9), (1, "training", 9))
    with dask.config.set({"train.rendezvous.timeout": "200s"}):
        result = fitted(client, fate, recovery=dt.RecoveryPolicy(scope="in_place", max_restarts=5))
    assert (fate.num_lost, len(result.attempts)) == (2, 3), [attempt.reason for attempt in result.attempts]
    check_same(result, undisturbed)
    assert fate.processes == [1 + (each in (1, rank)) for each in range(3)]


@pytest.mark.slow
def test_all_start_again_where_the_best_checkpoint_was_known_by_the_lost_worker(client, tmp_path, undisturbed):
    fate = Fate(tmp_path / "fate", (0, "training", STEPS + 5))
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=3, best="val_loss")
    result = fitted(client, fate, recovery="in_place", checkpoint=kept)
    assert [attempt.reason for attempt in result.attempts][1].startswith(
        "worker 0 could not continue in place: worker 0"
    )
    check_same(result, undisturbed, repeats=True)  # since the last checkpoint
    assert fate.processes == [2, 2, 2], "the one that could not go on has trained nothing"


def test_other_kinds_of_run_are_refused(client):
    with pytest.raises(ValueError, match="torch modules, Keras models, linear models and boosted trees"):
        dt.train(lambda session: None, roles={"worker": 1}, recovery="in_place", client=client)
