"""The loop of a worker: epochs, checkpoints and what goes on from them, with a session that is played."""

from __future__ import annotations

import copy
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchmetrics

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError, DivergedError
from dask_train.fitting.torch_module.checkpoints import configuration_of
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining, OuterOptimizer
from dask_train.fitting.torch_module.values import from_plain
from dask_train.fitting.torch_module.worker import ModuleWorker
from dask_train.frameworks.torch.modules import pickle_parts
from dask_train.role.time_spent import TimeSpent

ROWS, BATCH_SIZE = 52, 8
_random = np.random.default_rng(0)
X = torch.from_numpy(_random.normal(size=(ROWS, 4)))
Y = torch.from_numpy(_random.integers(0, 3, ROWS))


class Data:
    """Rows in an order that each epoch has to itself, of which a rank has every so-many-th of a batch."""

    num_rows = ROWS

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size

    def batches(self, *, epochs=1, batch_size, shuffle, seed=0, start=(0, 0)):
        for epoch in range(start[0], epochs):
            order = np.random.default_rng(epoch).permutation(ROWS) if shuffle else np.arange(ROWS)
            for at in range(start[1] * batch_size if epoch == start[0] else 0, ROWS, batch_size):
                mine = order[at : at + batch_size][self.rank :: self.size]
                yield X[mine], Y[mine]

    def some_row(self):
        return X[:1], Y[:1]


class Session(Data):
    """What a worker sees of its run."""

    peers = {}  # noqa: RUF012

    def __init__(self, folder, scratch, rank=0, size=1, *, attempt=0, stops_after=None):
        super().__init__(rank, size)
        self._data, self._folder, self.scratch, self.attempt = Data(rank, size), folder, scratch, attempt
        self._asked, self._stops_after, self.scores = 0, stops_after, []
        self._link = SimpleNamespace(spent=TimeSpent())
        self.notices = []

    def dataset(self, name):
        return Data(self.rank, self.size)

    def notice(self, text):
        self.notices.append(text)

    def report(self, **scores):
        self.scores.append(scores)

    def should_stop(self):
        self._asked += 1
        return self._asked == self._stops_after

    def checkpoints(self):
        return self._folder

    def open_checkpoint(self, *, own):
        loaded = self._folder.load(self.scratch, own=own)
        return loaded and loaded.folder


def network(*between):
    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), *between, torch.nn.Linear(6, 3)).double()
    net.register_buffer("scale", torch.tensor(1.5))
    return net


@pytest.fixture
def trained(tmp_path, on_each_rank):
    """Trains a network; the outcome of the first worker, and the session of it."""

    def train(
        name,
        *,
        net=None,
        size=1,
        epochs=3,
        resume=False,
        stops_after=None,
        lr=0.05,
        dropout=0.0,
        best=None,
        run="this",
        outer=None,
        **more,
    ):
        net = net or network(torch.nn.BatchNorm1d(6), torch.nn.Dropout(dropout))
        training = ModuleTraining(
            module=net,
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=partial(torch.optim.Adam, lr=lr),
            scheduler=partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0, threshold=1.0),
            metrics={"accuracy": torchmetrics.classification.MulticlassAccuracy(3), **more},
        )
        made = training.optimizer(net.parameters())
        header, arrays = pickle_parts(training)
        folder = tmp_path / name
        kept = Checkpoint(folder, every_steps=3, best=best, restore_best=best is not None)
        task = ModuleTask(
            header={"training": header},
            arrays=arrays,
            columns=Columns.of_batch(2),
            validation_columns=Columns.of_batch(2),
            validation_batch_size=20,
            epochs=epochs,
            batch_size=BATCH_SIZE,
            random=torch.get_rng_state().numpy().copy(),
            checkpoint=kept,
            resume=resume,
            run=run,
            configuration=configuration_of(training, made, training.scheduler(made), Columns.of_batch(2)),
            outer=outer,
        )

        def take_part(rank, replicas):
            place = CheckpointPlace(url=str(folder), run=run, best=best, mode="min", resume=resume)
            scratch = tmp_path / f"scratch-{name}-{run}-{rank}"
            scratch.mkdir(exist_ok=True)
            session = Session(CheckpointFolder(place, 0), scratch, rank, size, stops_after=stops_after)
            return ModuleWorker(task, session, replicas).fit(), session

        found = on_each_rank(take_part, size)
        assert [outcome for outcome, _ in found[1:]] == [None] * (size - 1)
        return found[0]

    return train


def check_same(outcome, wanted):
    one, other = (from_plain(each.header["training"]) for each in (outcome, wanted))
    for name, tensor in other["module"]["state"].items():
        assert torch.equal(one["module"]["state"][name], tensor), name
    assert repr(one) == repr(other)
    assert outcome.history == wanted.history
    assert outcome.epoch == wanted.epoch


@pytest.mark.parametrize(("size", "dropout"), [(1, 0.4), (2, 0.0)])  # threads draw from the same random numbers
def test_what_was_stopped_within_an_epoch_goes_on_to_the_same_bits(trained, size, dropout):
    whole, session = trained("whole", size=size, dropout=dropout)
    assert [score["epoch"] for score in session.scores if "step" not in score] == [0, 1, 2]
    assert list(whole.history) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert whole.steps == 21
    cut, _ = trained("cut", size=size, dropout=dropout, stops_after=11)
    assert (cut.epoch, cut.steps) == ([0, 1], 11)
    resumed, _ = trained("cut", size=size, dropout=dropout, resume=True, run="other")
    check_same(resumed, whole)
    assert resumed.read[0][0] == "this"
    assert resumed.read[0][2][0][0].done + resumed.read[0][2][0][1].done == 11


def test_other_metrics_may_be_counted_by_who_goes_on(trained):
    def correct(outputs, y):
        return outputs.argmax(1) == y

    whole, _ = trained("whole", correct=correct)
    trained("cut", stops_after=11)
    resumed, session = trained("cut", resume=True, run="other", correct=correct)
    assert resumed.history["accuracy"] == whole.history["accuracy"]
    assert resumed.history["correct"][-1] == whole.history["correct"][-1]
    assert "Of epoch 2 correct has the rows from step 5 on" in session.notices[0]


def test_other_arguments_are_no_way_to_go_on(trained):
    trained("kept", epochs=1)
    with pytest.raises(CheckpointError, match=r"optimizer.groups\[0\].lr was 0.05, and is 0.1"):
        trained("kept", resume=True, lr=0.1, run="other")


def test_the_scheduler_looks_at_the_validation_and_the_best_model_is_the_last_to_be_told(trained):
    plain, _ = trained("plain")
    rates = from_plain(plain.header["training"])["optimizer"]["param_groups"][0]["lr"]
    assert rates == pytest.approx(0.05 * 0.1**3), "a threshold that nothing meets"
    best, _ = trained("best", best="val_loss")
    assert best.best_epoch == int(np.argmin(best.history["val_loss"]))


def test_two_workers_train_what_one_does_but_for_their_moving_averages(trained):
    """Without BatchNorm they would be equal; that it is there shows that its averages are those of all."""
    one, two = (trained(f"by {size}", size=size, epochs=1)[0] for size in (1, 2))
    means = [from_plain(each.header["training"])["module"]["state"]["1.running_mean"] for each in (one, two)]
    torch.testing.assert_close(*means, rtol=0.1, atol=0.05)
    assert not torch.equal(*means)
    assert copy.deepcopy(two.epoch) == one.epoch


EVERY_TWO = OuterOptimizer(every=2, learning_rate=0.7, momentum=0.9)


def test_workers_that_step_alone_resume_to_the_same_bits(trained):
    """They are stopped, and save, where they have the same weights: each with an optimizer of its own."""
    whole, session = trained("whole", size=3, net=network(), outer=EVERY_TWO)
    assert list(whole.history) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert whole.steps == 21
    assert "3 workers have taken steps alone, and have moved the weights" in session.notices[0]
    cut, _ = trained("cut", size=3, net=network(), outer=EVERY_TWO, stops_after=5)
    assert (cut.epoch, cut.steps) == ([0, 1], 9), "three times within the first epoch, at its end, and once more"
    resumed, session = trained("cut", size=3, net=network(), outer=EVERY_TWO, resume=True, run="other")
    check_same(resumed, whole)
    assert len(session.notices) == 1


def test_another_number_of_workers_that_step_alone_is_told_of(trained):
    trained("cut", size=3, net=network(), outer=EVERY_TWO, stops_after=5)
    resumed, session = trained("cut", size=2, net=network(), outer=EVERY_TWO, resume=True, run="other")
    assert resumed.steps == 21
    assert "made by 3 workers that take steps alone, and this run has 2" in session.notices[1]


class Changing(torch.nn.Module):
    """Changes its tensors with each batch of training, by what the weights are and not by the rows."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(6, 6), 0
        self.register_buffer("teacher", self.linear.weight.detach().clone())
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.linear.weight.copy_(torch.nn.functional.normalize(self.linear.weight))
                self.teacher = 0.9 * self.teacher + 0.1 * self.linear.weight  # another tensor
            self.count += 1
        return self.linear(x) + x @ self.teacher / (1 + self.count)


@pytest.mark.parametrize("size", [2, 3])
def test_what_a_module_changes_by_itself_is_as_in_one_process(trained, monkeypatch, size):
    """The last batch of an epoch has one row, which most workers have none of."""
    monkeypatch.setattr(sys.modules[__name__], "BATCH_SIZE", 17)

    def net():
        torch.manual_seed(4)
        norms = torch.nn.utils.spectral_norm, torch.nn.utils.parametrizations.spectral_norm
        return network(*(norm(torch.nn.Linear(6, 6), n_power_iterations=1) for norm in norms), Changing())

    one, several = (trained(f"by {each}", net=net(), size=each) for each in (1, size))
    trained("cut", net=net(), size=size, stops_after=7)
    resumed, _ = trained("cut", net=net(), size=size, resume=True, run="other")
    check_same(resumed, several[0])
    wanted, found = (from_plain(each.header["training"])["module"]["state"] for each, _ in (one, several))
    assert wanted["3.count"] == 12
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-12, msg=name)


class Keeping(torch.nn.Module):
    """Keeps the last rows in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(0))

    def forward(self, x):
        self.last = x.detach()
        return x


def test_a_buffer_of_another_shape_is_refused_before_the_second_step(trained):
    with pytest.raises(ValueError, match=r"'1.last': \(0,\) here, and \(8, 6\) there. It makes or cuts"):
        trained("one", net=network(Keeping()))


class Codebook(torch.nn.Module):
    """Moves what it keeps towards the rows that it is called on; a tensor of either kind."""

    def __init__(self, *, trains):
        super().__init__()
        if trains:
            self.codes = torch.nn.Parameter(torch.zeros(6), requires_grad=False)
        else:
            self.register_buffer("codes", torch.zeros(6))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.codes += 0.1 * (x.mean(0) - self.codes)
        return x - self.codes


@pytest.mark.parametrize("trains", [False, True])
def test_what_a_module_learns_of_its_rows_by_itself_is_for_one_worker(trained, trains):
    assert trained("one", net=network(Codebook(trains=trains)), epochs=1)[0].steps == 7
    with pytest.raises(DivergedError, match=r"'1.codes' differs.*\n?.*a queue, a codebook"):
        trained("two", net=network(Codebook(trains=trains)), size=2)
