"""A trial that is begun again goes on with the checkpoints of its earlier starts; without Keras."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.data.columns import Columns
from dask_train.fitting.roles.entry import KerasTrialRole
from dask_train.fitting.spec import FitTask
from dask_train.searching.model_trials import TrialSession
from dask_train.searching.worker import TrialPlace, TrialRequest
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint


class Session:
    """What a trial asks of one."""

    def __init__(self, scratch):
        self.scratch, self.notices, self.scores = scratch, [], []

    def notice(self, text):
        self.notices.append(text)

    def report(self, **scores):
        self.scores.append(scores)


@pytest.fixture
def begun(tmp_path):
    """Begins a trial in a new folder, after those starts."""

    def trial(name, *earlier, to_beat=None):
        session = Session(tmp_path / f"scratch of {name}")
        place = TrialPlace(url=str(tmp_path / name), earlier=[str(tmp_path / each) for each in earlier])
        task = FitTask(header={"config": "that of the model"}, arrays=[], columns=Columns(features=0), run=name)
        request = TrialRequest(
            number=3, work=KerasTrialRole(task), metric="val_loss", mode="min", to_beat=to_beat, place=place
        )
        return TrialSession(session, request, {}, {}), session

    return trial


def trained(folder, scratch, losses, not_as_scored=frozenset()):
    """Checkpoints at the ends of epochs, as ``fit`` keeps them."""
    for epoch, loss in enumerate(losses, 1):
        kept = FitCheckpoint(
            run="first",
            order={},
            configuration={},
            epoch=epoch,
            batch=0,
            steps=epoch,
            shared={"model": {"parts": [{"keys": [epoch]}, [np.full(2, epoch)]]}},
            history={"loss": [9.0] * epoch, "val_loss": losses[:epoch]},
            epochs=list(range(epoch)),
            read=[],
        )
        is_best = loss == min(losses[:epoch]) and epoch - 1 not in not_as_scored
        folder.save(kept.write, scratch, score=loss if is_best else None)


def test_it_goes_on_with_the_last_and_knows_the_best(begun, tmp_path):
    trial, _ = begun("first")
    trained(trial.checkpoints(), tmp_path, [0.5, 0.2, 0.4, 0.3])
    again, session = begun("third", "first", "second")  # the second start has kept none
    folder = again.open_checkpoint()
    assert FitCheckpoint.load(folder).epoch == 4
    assert (again.best.value, again.best.epoch) == (0.2, 1)
    header, (array,) = again.best.parts["model"]["parts"]
    assert header["keys"] == [2]
    np.testing.assert_array_equal(array, [2, 2])
    assert session.scores == [
        {"trial": 3, "epoch": epoch, "val_loss": loss} for epoch, loss in enumerate([0.5, 0.2, 0.4, 0.3])
    ]
    assert session.notices == []
    later, _ = begun("fourth", "first", "second", "third", to_beat=0.1)
    assert FitCheckpoint.load(later.open_checkpoint()).epoch == 4
    assert later.checkpoints().best.score == 0.2, "also where it was begun a third time"
    assert (later.best.value, later.best.parts) == (0.2, None), "another trial is better"


def test_an_epoch_that_was_not_scored_as_it_is_does_not_count(begun, tmp_path):
    trial, _ = begun("first")
    trained(trial.checkpoints(), tmp_path, [0.5, 0.2, 0.4], not_as_scored={1})
    again, _ = begun("second", "first")
    assert again.open_checkpoint() is not None
    assert (again.best.value, again.best.epoch) == (0.5, 0)
    assert again.best.parts["model"]["parts"][0]["keys"] == [1]
    trial, _ = begun("third")
    trained(trial.checkpoints(), tmp_path, [0.5], not_as_scored={0})
    again, session = begun("fourth", "third")
    assert again.open_checkpoint() is not None
    assert (again.best.value, again.best.parts) == (None, None)
    assert [scores["val_loss"] for scores in session.scores] == [0.5], "a pruner sees it"


def test_without_any_it_begins_anew_and_says_so(begun, tmp_path):
    trial, session = begun("first")
    assert trial.open_checkpoint() is None
    assert session.notices == [], "it is the first start"
    trial, session = begun("second", "first")
    assert trial.open_checkpoint() is None
    assert session.notices == ["Trial 3 had no checkpoint to resume from: it is trained from its beginning."]


def test_damaged_ones_are_told_of(begun, tmp_path):
    trial, _ = begun("first")
    trained(trial.checkpoints(), tmp_path, [0.5])
    (file,) = (tmp_path / "first").glob("*/values.json")
    file.write_text("{}")
    trial, session = begun("second", "first")
    assert trial.open_checkpoint() is None
    damaged, anew = session.notices
    assert damaged.startswith("Trial 3: No checkpoint at ")
    assert "its file values.json has 2 of" in damaged
    assert "it is trained from its beginning" in anew


def test_two_starts_write_apart(begun, tmp_path):
    first, _ = begun("first")
    trained(first.checkpoints(), tmp_path, [0.5])
    second, _ = begun("second", "first")
    second.open_checkpoint()
    trained(first.checkpoints(), tmp_path, [0.5, 0.4])  # a process that the search believes lost
    left = CheckpointFolder(CheckpointPlace(url=str(tmp_path / "second"), best="val_loss", mode="min"))
    assert FitCheckpoint.load(left.load(Path(tmp_path / "scratch")).folder).epoch == 1
