"""``fit`` of torch modules: the loop that one writes by hand, on several workers, with all that runs of Keras have."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
import torchmetrics

import dask_train as dt

pytestmark = pytest.mark.usefixtures("metrics_in_templates")

ROWS, BATCH_SIZE = 301, 30  # the last batch has one row: most workers have none
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8))
Y = (X @ _random.normal(size=(8, 3))).argmax(1)
BY_CLASS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
OPTIMIZER = partial(torch.optim.AdamW, lr=0.02)
SCHEDULER = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)


def rows():
    return da.from_array(X, chunks=(70, 8)), da.from_array(Y, chunks=70)


def network(*between):
    torch.manual_seed(3)
    hidden, out = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
    return torch.nn.Sequential(hidden, torch.nn.Tanh(), *between, out).double()


def accuracy():
    return torchmetrics.classification.MulticlassAccuracy(3, average="micro")


def correct(outputs, y):
    return outputs.argmax(1) == y


def by_hand(module, loss, epochs):
    """A loop without dask-train."""
    optimizer = OPTIMIZER(module.parameters())
    scheduler = SCHEDULER(optimizer)
    losses, x, y = [], torch.from_numpy(X), torch.from_numpy(Y)
    for _ in range(epochs):
        total = 0.0
        for at in range(0, ROWS, BATCH_SIZE):
            optimizer.zero_grad()
            found = loss(module(x[at : at + BATCH_SIZE]), y[at : at + BATCH_SIZE])
            found.backward()
            optimizer.step()
            total += found.item() * len(x[at : at + BATCH_SIZE])
        losses.append(total / ROWS)
        scheduler.step()
    return losses


def check_same(module, other, tolerance=0.0):
    for one, wanted in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("workers", "tolerance"), [(0, 0.0), (1, 0.0), (3, 1e-9)])
def test_workers_train_the_module_of_a_loop_by_hand(client, workers, tolerance):
    wanted, loss = network(), torch.nn.CrossEntropyLoss(weight=BY_CLASS)
    losses = by_hand(wanted, loss, 3)
    module = network()
    tensors = list(module.parameters())
    result = dt.fit(
        module,
        *rows(),
        loss=loss,
        optimizer=OPTIMIZER,
        scheduler=SCHEDULER,
        metrics={"accuracy": accuracy(), "correct": correct},
        validation_data=(X[:50], Y[:50]),
        epochs=3,
        batch_size=BATCH_SIZE,
        shuffle=False,
        workers=workers,
        client=client,
        verbose=0,
    )
    check_same(module, wanted, tolerance)
    assert all(one is other for one, other in zip(module.parameters(), tensors, strict=True)), "in place"
    assert result.history["loss"] == pytest.approx(losses, rel=1e-9)
    assert result.history["accuracy"] == pytest.approx(result.history["correct"], rel=1e-6)
    assert (result.ledger.trained, result.ledger.dropped, result.epoch) == (3 * ROWS, 0, [0, 1, 2])
    if workers < 3:
        return
    scores = dt.evaluate(module, X[:50], Y[:50], loss=loss, metrics=[correct], batch_size=30, client=client, verbose=0)
    last = {name: values[-1] for name, values in result.history.items()}
    assert scores == {"loss": pytest.approx(last["val_loss"]), "correct": pytest.approx(last["val_correct"])}


class Dies(torch.nn.Module):
    """Ends its process when so many batches of training have gone through it, once."""

    def __init__(self, mark, at):
        super().__init__()
        self.mark, self.at, self.count = mark, at, 0

    def forward(self, x):
        self.count += self.training
        if self.count == self.at:
            with suppress(FileExistsError):  # one of the workers that are here at the same time makes the mark
                open(self.mark, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return x


@pytest.mark.slow
def test_what_was_killed_ends_with_the_same_bits(client, tmp_path):
    def fitted(mark="none", at=-1, **settings):
        module = network(torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), Dies(str(tmp_path / mark), at))
        arguments = {"epochs": 4, "batch_size": 29, "workers": 2, "seed": 5, "client": client, "verbose": 0, **settings}
        return dt.fit(
            module,
            *rows(),
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=OPTIMIZER,
            scheduler=SCHEDULER,
            metrics=[accuracy()],
            **arguments,
        )

    whole = fitted()
    killed = fitted("killed", 30, checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=7))
    assert (len(killed.attempts), killed.ledger.trained, killed.history) == (2, 4 * ROWS, whole.history)
    check_same(killed.model, whole.model)


@pytest.mark.slow
def test_workers_that_step_alone_end_with_the_same_bits_after_a_kill(client, tmp_path):
    """Within a turn of steps, of which nothing is left: all begin anew where they last had the same weights."""

    def fitted(mark="none", at=-1, **settings):
        module = network(torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), Dies(str(tmp_path / mark), at))
        arguments = {"epochs": 4, "batch_size": 29, "workers": 2, "sync_every": 4, "client": client, "verbose": 0}
        return dt.fit(
            module,
            *rows(),
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=OPTIMIZER,
            scheduler=SCHEDULER,
            metrics=[accuracy()],
            **arguments,
            **settings,
        )

    whole = fitted()
    killed = fitted("killed", 30, checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=3))
    assert (len(killed.attempts), killed.ledger.trained, killed.history) == (2, 4 * ROWS, whole.history)
    check_same(killed.model, whole.model)
    assert len([notice for notice in whole.notices if "sync_every=4" in notice]) == 1
    again = fitted(checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=3), resume=True, outer_momentum=0.9)
    assert again.history == whole.history
    with pytest.raises(dt.RoleFailedError) as caught:
        fitted(checkpoint=tmp_path / "kept", resume=True, outer_momentum=0.5)
    assert "outer.momentum was 0.9, and is 0.5" in str(caught.value.__cause__)


@pytest.mark.slow
def test_frames_streams_and_an_optimizer_that_goes_on(client):
    module, wanted = network(), network()
    frame = pd.DataFrame(X, columns=list("abcdefgh")).assign(kind=Y, weight=1.0)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    settings = {
        "loss": torch.nn.CrossEntropyLoss(),
        "batch_size": 40,
        "shuffle": False,
        "workers": 2,
        "client": client,
        "verbose": 0,
    }
    for streaming in (False, True):
        dt.fit(
            module,
            dd.from_pandas(frame, npartitions=4),
            features=list("abcdefgh"),
            label="kind",
            sample_weight="weight",
            optimizer=optimizer,
            streaming=streaming,
            **settings,
        )
    dt.fit(wanted, *rows(), epochs=2, optimizer=partial(torch.optim.Adam, lr=0.05), **settings)
    check_same(module, wanted, 1e-9)
    assert optimizer.state[module[0].weight]["step"] == 16
    run = dt.fit(module, *rows(), epochs=10_000, optimizer=optimizer, wait=False, stop="loss < 0.3", **settings)
    result = run.result()
    assert "loss" in result.stop_reason
    assert result.history["loss"][-1] < 0.4


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_module_is_trained_as_the_one_within(client, workers, in_place):
    plain, within = network(), network()
    compiled = within
    if in_place:
        within.compile(backend="eager")
    else:
        compiled = torch.compile(within, backend="eager")
    settings = {"loss": torch.nn.CrossEntropyLoss(), "optimizer": OPTIMIZER, "batch_size": BATCH_SIZE}
    settings |= {"workers": workers, "shuffle": False, "client": client, "verbose": 0}
    assert dt.fit(plain, *rows(), **settings).notices == []
    found = dt.fit(compiled, *rows(), **settings)
    assert found.model is compiled
    torch.testing.assert_close(compiled(torch.from_numpy(X)), plain(torch.from_numpy(X)), rtol=1e-9, atol=1e-9)
    told = [] if in_place and not workers else ["was compiled with torch.compile, and is trained without its compiled"]
    assert [each for each in told if each in found.notices[0]] == told
    assert len(found.notices) == len(told)


def test_what_a_verb_warns_of_names_the_line_of_its_call(client):
    module, loss, missing = network(), torch.nn.CrossEntropyLoss(), np.full_like(X, np.nan)
    with pytest.warns(UserWarning, match="Weights are NaN or infinite") as of_fit:
        dt.fit(module, missing, Y, loss=loss, optimizer=OPTIMIZER, workers=1, client=client)
    with pytest.warns(UserWarning, match="The loss is NaN") as of_evaluation:
        dt.evaluate(module, missing, Y, loss=loss, workers=1, client=client)
    assert [each.filename for each in [*of_fit, *of_evaluation]] == [__file__, __file__]
