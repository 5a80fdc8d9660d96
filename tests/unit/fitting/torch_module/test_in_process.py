"""``workers=0`` for modules: the user's own are trained in this thread, as a loop by hand does; nothing is left."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
import torch
import torchmetrics
from torch.optim import lr_scheduler

import dask_train as dt

ROWS, BATCH_SIZE = 52, 8
_random = np.random.default_rng(0)
X, Y = _random.normal(size=(ROWS, 4)), _random.integers(0, 3, ROWS)
SETTINGS = {"batch_size": BATCH_SIZE, "workers": 0, "verbose": 0}


@pytest.fixture
def cold(pool):
    """The process's own pool, whose memory goes back at once."""
    pool.keep_warm_s = 0.05


class Looks(torch.nn.Module):
    """Notes from where it is called; can't be sent, and raises in one call."""

    def __init__(self, raises_in=None):
        super().__init__()
        self.lock, self.seen, self.raises_in = threading.Lock(), [], raises_in

    def forward(self, x):
        self.seen += [threading.current_thread()] * self.training
        if len(self.seen) == self.raises_in:
            raise BrokenError("in hand")
        return x


class BrokenError(Exception):
    """The user's own."""


def network(*more):
    torch.manual_seed(2)
    parts = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.4), torch.nn.Linear(6, 3)
    return torch.nn.Sequential(*more, *parts).double()


def by_hand(module, epochs, step_size=2):
    """The loop that one writes; the weights are what the tests compare."""
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    scheduler = lr_scheduler.StepLR(optimizer, step_size)
    parameter = next(module.parameters())
    for _ in range(epochs):
        for at in range(0, ROWS, BATCH_SIZE):
            optimizer.zero_grad()
            x, y = torch.from_numpy(X[at : at + BATCH_SIZE]), torch.from_numpy(Y[at : at + BATCH_SIZE])
            torch.nn.functional.cross_entropy(module(x.to(parameter.dtype)), y).backward()
            optimizer.step()
        scheduler.step()


def check_same(module, other):
    for name, one in other.state_dict().items():
        assert torch.equal(module.state_dict()[name], one), name


def test_a_module_in_bfloat16_is_trained_resumed_and_evaluated_as_by_hand(tmp_path):
    wanted, (module, again) = network()[::3].bfloat16(), (network()[::3].bfloat16() for _ in range(2))
    by_hand(wanted, 3)
    settings = {
        **SETTINGS,
        "loss": torch.nn.CrossEntropyLoss(),
        "optimizer": partial(torch.optim.Adam, lr=0.05),
        "scheduler": partial(lr_scheduler.StepLR, step_size=2),
        "shuffle": False,
        "checkpoint": tmp_path,
    }
    dt.fit(module, X, Y, epochs=2, **settings)
    dt.fit(again, X, Y, epochs=3, resume=True, **settings)
    check_same(again, wanted)
    assert {one.dtype for one in again.parameters()} == {torch.bfloat16}


def test_a_schedule_by_epoch_does_not_resume_by_step(tmp_path):
    settings = {**SETTINGS, "loss": torch.nn.CrossEntropyLoss(), "checkpoint": tmp_path}
    settings |= {"optimizer": torch.optim.Adam, "scheduler": partial(lr_scheduler.StepLR, step_size=2)}
    dt.fit(network(), X, Y, **settings)
    with pytest.raises(dt.CheckpointError, match="scheduler_interval was 'epoch', and is 'step'"):
        dt.fit(network(), X, Y, epochs=2, resume=True, scheduler_interval="step", **settings)


@pytest.mark.parametrize("virtual_workers", [None, 2])
def test_a_gradient_from_before_a_parameter_was_frozen_is_not_applied(virtual_workers):
    module = torch.nn.Linear(4, 3)
    module.bias.grad = torch.ones(3)
    before = module.bias.requires_grad_(False).clone()
    more = {"optimizer": partial(torch.optim.SGD, lr=0.1), "virtual_workers": virtual_workers}
    dt.fit(module, X, Y, loss=torch.nn.CrossEntropyLoss(), **more, **SETTINGS)
    assert torch.equal(module.bias, before)
    assert torch.equal(module.bias.grad, torch.ones(3)), "it is the user's"


def test_this_thread_trains_the_very_module_as_a_loop_by_hand_does(cold, no_leaks):
    wanted = network()
    by_hand(wanted, 3)
    looks, called = Looks(), []

    def loss(outputs, y):
        called.append(threading.current_thread())
        return torch.nn.functional.cross_entropy(outputs, y)

    def correct(outputs, y):
        called.append(threading.current_thread())
        return outputs.argmax(1) == y

    module = network(looks)
    module[3].eval()
    parameters = list(module.parameters())
    parameters[0].grad = before = torch.ones_like(parameters[0])
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    random = torch.get_rng_state()
    with no_leaks():
        result = dt.fit(
            module,
            X,
            Y,
            loss=loss,
            optimizer=optimizer,
            scheduler=partial(lr_scheduler.StepLR, step_size=2),
            metrics=[correct, torchmetrics.classification.MulticlassAccuracy(3, average="micro")],
            validation_data=(X, Y),
            epochs=3,
            shuffle=False,
            **SETTINGS,
        )
    assert set(looks.seen) == set(called) == {threading.current_thread()}
    for one, other in zip(module[1:].state_dict().values(), wanted.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert result.model is module
    assert result.history["correct"] == pytest.approx(result.history["MulticlassAccuracy"])
    assert list(result.history)[3:] == ["val_loss", "val_correct", "val_MulticlassAccuracy"]
    assert (result.ledger.trained, result.attempts[0].places) == (3 * ROWS, {"worker/0": "this process"})
    # What a run in other processes does not touch is as it was, and the optimizer goes on with what it holds.
    assert torch.equal(torch.get_rng_state(), random)
    assert [part.training for part in module] == [True, True, True, False, True]
    assert (parameters[0].grad is before, parameters[1].grad) == (True, None)
    assert optimizer.state[parameters[0]]["step"] == 21
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)
    assert "step" not in vars(optimizer)


def test_an_optimizer_that_an_earlier_call_left_continues(cold, tmp_path):
    """As in a notebook: its scheduled learning rate is the checkpoint's, not that of the beginning."""
    settings = {"loss": torch.nn.CrossEntropyLoss(), "scheduler": partial(lr_scheduler.StepLR, step_size=1), **SETTINGS}
    module, whole = network(), network()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    dt.fit(whole, X, Y, epochs=3, seed=3, optimizer=partial(torch.optim.Adam, lr=0.05), **settings)
    for epochs in (1, 2):
        kept = {"checkpoint": tmp_path, "resume": epochs > 1, "seed": 3}
        result = dt.fit(module, X, Y, epochs=epochs, optimizer=optimizer, **kept, **settings)
    assert (result.epoch, result.notices) == ([0, 1], [])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0005)
    kept = {"checkpoint": tmp_path, "resume": True, "seed": 3}
    fresh = dt.fit(network(), X, Y, epochs=3, optimizer=partial(torch.optim.Adam, lr=0.05), **kept, **settings)
    check_same(fresh.model, whole)
    with pytest.raises(dt.CheckpointError, match=r"lr was 0\.05, and is 0\.04"):
        dt.fit(network(), X, Y, epochs=4, optimizer=partial(torch.optim.Adam, lr=0.04), **kept, **settings)


def test_it_stops_goes_on_and_ends_with_the_best(cold, tmp_path):
    settings = {
        "loss": torch.nn.CrossEntropyLoss(),
        "optimizer": partial(torch.optim.Adam, lr=0.05),
        "scheduler": partial(lr_scheduler.StepLR, step_size=2),
        "validation_data": (X[:20], Y[:20]),
        "seed": 3,
        **SETTINGS,
    }
    whole = dt.fit(network(), X, Y, epochs=4, **settings)

    def enough(scores):
        return sum("step" not in score for score in scores) == 2

    cut = dt.fit(network(), X, Y, epochs=4, stop=enough, checkpoint=tmp_path, **settings)
    assert ("enough" in cut.stop_reason, cut.epoch) == (True, [0, 1])
    resumed = dt.fit(network(), X, Y, epochs=4, checkpoint=tmp_path, resume=True, **settings)
    check_same(resumed.model, whole.model)
    assert (resumed.history, resumed.notices) == (whole.history, [])
    other = {**settings, "scheduler": partial(lr_scheduler.StepLR, step_size=1)}
    (notice,) = dt.fit(network(), X, Y, epochs=5, checkpoint=tmp_path, resume=True, **other).notices
    assert "schedule is the checkpoint's, not that of scheduler= in this call: step_size was 2, and is 1" in notice
    kept = dt.Checkpoint(tmp_path / "best", best="val_loss", restore_best=True)
    best = dt.fit(network(), X, Y, epochs=4, checkpoint=kept, **settings)
    assert best.best_epoch == int(np.argmin(best.history["val_loss"]))
    with torch.no_grad():
        found = settings["loss"](best.model.eval()(torch.from_numpy(X[:20])), torch.from_numpy(Y[:20])).item()
    assert found == pytest.approx(min(best.history["val_loss"]), rel=1e-12)


def test_what_is_raised_is_raised_as_it_is_and_the_module_is_as_it_was_then(cold, no_leaks, tmp_path):
    module = network(Looks(raises_in=9))
    with no_leaks(), pytest.raises(BrokenError, match="in hand"):
        dt.fit(
            module,
            X,
            Y,
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=torch.optim.Adam,
            checkpoint=tmp_path,
            epochs=2,
            **SETTINGS,
        )
    assert all(one.grad is None for one in module.parameters())
    assert int(module[2].num_batches_tracked) == 8


@pytest.mark.parametrize(
    ("given", "text"),
    [({"streaming": True}, "streaming=True needs a run on the cluster"), ({"wait": False}, "wait=False would return")],
)
def test_what_needs_other_processes_is_refused(given, text):
    with pytest.raises(ValueError, match=text):
        dt.fit(network(), X, Y, loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.Adam, **SETTINGS, **given)
