"""When a checkpoint of ``fit`` is due, and which one a run goes on with."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.account import BatchRange
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.loop import mode_of
from dask_train.fitting.roles.sent_callbacks import CallbackState, held_by, matched, progress_of
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.serialization import restore_parts
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint


class Session:
    """What a keeper asks of one."""

    num_rows, size, peers = 100, 2, {}

    def __init__(self, scratch, folder, attempt):
        self.scratch, self.attempt, self.folder = scratch, attempt, folder
        self._link = SimpleNamespace(spent=TimeSpent())
        self.notices = []
        self.notice = self.notices.append

    def checkpoints(self):
        return self.folder

    def open_checkpoint(self, *, own):
        loaded = self.folder.load(self.scratch, own=own)
        self.notices += [loaded.notice] if loaded and loaded.notice else []
        return loaded and loaded.folder


@pytest.fixture
def make(tmp_path):
    """A keeper of some run, and the time that it sees."""

    def keeper(every=(10, 60.0), *, run="this", attempt=0, resume=False, best=None, below="kept", **of_task):
        now, folder, settings = [0.0], tmp_path / below, {"batch_size": 8, "collective_timeout_s": 5.0, **of_task}
        task = FitTask(
            header={},
            arrays=[],
            columns=Columns(features=0),
            checkpoint=every and Checkpoint(folder, *every, best=best, restore_best=best is not None),
            run=run,
            resume=resume,
            **settings,
        )
        place = CheckpointPlace(url=str(folder), run=run, best=best)
        session = Session(tmp_path, CheckpointFolder(place, attempt), attempt)
        return Checkpointer(
            task, session, Epochs(-(-100 // settings["batch_size"])), mode_of, clock=lambda: now[0]
        ), now

    return keeper


def kept(keeper, run="this", steps=10, **more):
    settings = {
        "run": run,
        "order": keeper.data_order(),
        "configuration": {"model": {"class_name": "Sequential"}},
        "epoch": 1,
        "batch": 2,
        "steps": steps,
        "shared": {"keys": [["a", "0"]], "config": b"of a trainer", "weights": np.arange(3)},
        "history": {},
        "epochs": [],
        "read": [],
    }
    return FitCheckpoint(**{**settings, **more})


def test_when_one_is_due(make):
    keeper, now = make()
    assert not keeper.due(9, epoch_ends=False)
    assert keeper.due(10, epoch_ends=False)
    assert keeper.due(1, epoch_ends=True)
    keeper.keep(kept(keeper, steps=10))
    keeper.finish()
    assert not keeper.due(19, epoch_ends=False)
    assert keeper.due(21, epoch_ends=False)
    now[0] = 59.0
    assert not keeper.due(19, epoch_ends=False)
    now[0] = 61.0
    assert keeper.due(19, epoch_ends=False)


def test_none_is_due_where_none_are_kept(make):
    keeper, _ = make(every=None)
    assert not keeper.due(1000, epoch_ends=True)
    assert keeper.load() is None


class Slow:
    """A folder that is written to when it may be."""

    def __init__(self):
        self.may, self.began = threading.Semaphore(0), threading.Semaphore(0)
        self.saved, self.scores = [], []

    def save(self, write, scratch, *, score, mode, is_held):
        self.began.release()
        assert self.may.acquire(timeout=30)
        self.saved.append(write.__self__.steps)
        self.scores.append(score)
        return f"kept/{len(self.saved)}"


def test_the_end_of_an_epoch_is_kept_after_the_one_that_is_being_written(make):
    keeper, now = make()
    keeper._session.folder = slow = Slow()
    keeper.keep(kept(keeper, steps=13))
    assert slow.began.acquire(timeout=30)
    now[0] = 1000.0
    assert not keeper.due(20, epoch_ends=False), "that one waits until there is room"
    for steps in (26, 39):
        assert keeper.due(steps, epoch_ends=True)
        keeper.keep(kept(keeper, steps=steps))
    for _ in range(2):
        slow.may.release()
    keeper.finish()
    assert slow.saved == [13, 39], "the last one holds what the one before it held"
    keeper.keep(kept(keeper, steps=52))
    slow.may.release()
    keeper.finish()
    assert slow.saved == [13, 39, 52]


def model_with(*metrics):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=list(metrics))
    model.train_on_batch(np.ones((2, 1)), np.ones((2, 1)))
    return model


def test_the_best_one_waits_until_it_is_written(make):
    keeper, _ = make(best="loss")
    keeper._session.folder = slow = Slow()
    keeper.keep(kept(keeper, steps=13))
    assert slow.began.acquire(timeout=30)
    for steps, loss in ((26, 0.5), (39, 0.4), (52, 0.6), (65, float("nan"))):
        keeper.scored(None, {"loss": loss})
        keeper.keep(kept(keeper, steps=steps))
    for _ in range(3):
        slow.may.release()
    keeper.finish()
    assert (slow.saved, slow.scores) == ([13, 39, 65], [None, 0.4, None])


def test_training_ends_with_the_best_one(make):
    keeper, _ = make(best="loss")
    losses = {13: 0.5, 26: 0.4, 39: 0.6, 52: 0.4}
    for steps, loss in losses.items():
        keeper.scored(None, {"loss": loss})
        keeper.keep(kept(keeper, steps=steps, history={"loss": [loss]}))
        keeper.finish()
    assert keeper.best().steps == 26, "the first of equals"
    again, _ = make(best="loss", run="other", resume=True)
    assert again.load().steps == 52
    again.scored(None, {"loss": 0.45})
    again.keep(kept(again, steps=65))
    again.finish()
    assert again.best().steps == 26, "also of an earlier call"
    with pytest.raises(CheckpointError, match=r"the one with the min of 'loss', and .* the best of 'accuracy'"):
        make(best="accuracy", resume=True)[0].load()


def test_a_best_one_that_is_not_there_is_told_of(make):
    keeper, _ = make(best="loss")
    keeper.keep(kept(keeper, history={"loss": [float("nan")]}))
    keeper.finish()
    assert keeper.best() is None
    assert "no epoch has ended with a number for 'loss', so the model is as it was last" in keeper.warning
    assert make(best="loss", resume=True)[0].load() is not None
    keeper.keep(kept(keeper, history={"loss": [0.5]}))
    keeper.finish()
    with pytest.raises(CheckpointError, match="epochs of which none was kept as the best"):
        make(best="loss", resume=True)[0].load()
    keeper.keep(kept(keeper, history={"loss": [0.5]}, judged_by="loss"), as_scored=False)
    keeper.finish()
    assert make(best="loss", resume=True)[0].load() is not None, "it was begun with best=, and may still have one"


def test_the_best_one_is_known_by_one_number(make):
    keeper, _ = make(best="loss")
    keeper.scored(None, {"loss": np.array([0.5])})
    keeper.keep(kept(keeper, history={"loss": [np.array([0.5])]}))
    keeper.finish()
    assert keeper.best().history == {"loss": [0.5]}
    with pytest.raises(ValueError, match=r"known by 'loss', which is not one number\. Name another score"):
        keeper.scored(None, {"loss": np.zeros(3)})


def written(keeper):
    """Wait for what is being written; scores may come yet."""
    while (thread := keeper._writing) is not None:
        thread.join(60)
        assert keeper._failed is None


def after(keeper, epoch, **more):
    """The checkpoint of an epoch's end."""
    return kept(keeper, steps=13 * (epoch + 1), epoch=epoch + 1, batch=0, epochs=[*range(epoch + 1)], **more)


@pytest.mark.parametrize("waits", [True, False], ids=["written before", "in any order"])
def test_a_score_of_a_scorer_belongs_to_the_checkpoint_of_its_epoch(make, tmp_path, waits):
    """As a spool tells of them: one is in the scorer's hands, and the latest is next; others are never scored."""
    keeper, _ = make(best="val_loss", scored_elsewhere=True)
    scores = {0: 0.5, 2: 0.4, 3: 0.6, 5: 0.4}
    for open_then, epoch, came, open_now in (
        ({0}, 0, None, {0}),
        ({0, 1}, 1, None, {0, 1}),
        ({0, 2}, 2, 0, {2}),
        ({2, 3}, 3, 2, {3}),
        ({3, 4}, 4, None, {3, 4}),
        ({3, 5}, 5, 3, {5}),
    ):
        keeper.expect_scores(open_then)
        keeper.scored(None, {"loss": 1.0})
        keeper.keep(after(keeper, epoch))
        if waits:
            written(keeper)
        if came is not None:
            keeper.take_scores(came, {"val_loss": scores[came]})
        keeper.expect_scores(open_now)
    keeper.take_scores(5, {"val_loss": scores[5]})
    keeper.finish()
    assert keeper.best().epoch == 3, "the first of equals"
    left = sorted(int(file.stem.split("-")[1]) for file in (tmp_path / "kept").glob("*.json"))
    assert len(left) == 3, "the last two and the best"
    again, _ = make(best="val_loss", run="other", resume=True, scored_elsewhere=True)
    assert again.load().epoch == 6
    # It goes on with what the earlier run has found; a score that comes before its checkpoint is no other's.
    again.expect_scores({6})
    again.take_scores(6, {"val_loss": 0.1})
    again.expect_scores({7})
    again.keep(after(again, 6))
    again.keep(after(again, 7))
    again.finish()
    assert again.best().epoch == 7
    assert again._session.notices == []


def test_weights_that_were_not_validated_are_not_the_best(make):
    for settings in ({}, {"scored_elsewhere": True}):
        keeper, _ = make(best="val_loss", below=f"of {settings}", **settings)
        keeper.expect_scores({0})
        keeper.scored(None, {"loss": 1.0} if settings else {"loss": 1.0, "val_loss": 0.1})
        keeper.keep(after(keeper, 0), as_scored=False)
        keeper.take_scores(0, {"val_loss": 0.1})
        keeper.expect_scores({1})
        keeper.scored(None, {"loss": 1.0} if settings else {"loss": 1.0, "val_loss": 0.2})
        keeper.keep(after(keeper, 1))
        keeper.take_scores(1, {"val_loss": 0.2})
        keeper.finish()
        assert keeper.best().epoch == 2
        (notice,) = keeper._session.notices
        assert "callbacks left other weights in the model than were validated" in notice


class Skill(keras.metrics.Mean):
    """One of which nobody knows what is better."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_pred)


def test_what_is_better_is_told_as_in_keras(make, recwarn):
    model = model_with(keras.metrics.BinaryAccuracy(name="accuracy"), keras.metrics.MeanSquaredError(name="mse"))
    for name, worse, better in (("val_loss", 1.0, 0.5), ("accuracy", 0.5, 1.0), ("val_accuracy", 0.5, 1.0)):
        keeper, _ = make(best=name)
        for value in (worse, better, worse):
            keeper.scored(model, {name: value})
            keeper.keep(kept(keeper))
        keeper.finish()
        assert keeper._best_score == better, name
    keeper, _ = make(best="val_loss")
    keeper.scored(model, {"loss": 0.5})  # an epoch without validation
    with pytest.raises(ValueError, match=r"known by 'val_loss', and after an epoch there are loss, val_mse\. Name one"):
        keeper.scored(model, {"loss": 0.5, "val_mse": 0.5})
    keeper, _ = make(best="skill")
    with pytest.raises(ValueError, match=r"Keras can't tell whether less or more of it is better. Pass mode='min' or"):
        keeper.scored(model_with(Skill(name="skill")), {"skill": 0.5})


def test_a_place_that_does_not_answer_ends_training_at_a_deadline(make):
    keeper, _ = make(collective_timeout_s=0.01)
    keeper._session.folder = slow = Slow()
    keeper.keep(kept(keeper))
    with pytest.raises(CheckpointError, match=r"is still being written after 0\.01 s"):
        keeper.finish()
    slow.may.release()


def test_a_run_that_begins_anew_tells_of_what_it_replaces(make):
    first, other = make()[0], make(run="other")[0]
    first._session.checkpoints().check()
    assert first.load() is None
    assert first._session.notices == []
    first.keep(kept(first))
    first.finish()
    other._session.checkpoints().check()
    assert other.load() is None
    assert [" has checkpoints of an earlier run. This one begins anew" in each for each in other._session.notices] == [
        True
    ]


def test_which_one_a_run_goes_on_with(make):
    keeper, _ = make()
    assert keeper.load() is None, "a run begins anew"
    keeper.keep(kept(keeper))
    keeper.finish()
    assert make(attempt=1)[0].load().steps == 10, "its own, when it starts again"
    assert make(run="other", attempt=1)[0].load() is None, "not that of another run"
    found = make(run="other", resume=True)[0].load()
    assert (found.epoch, found.batch, found.run) == (1, 2, "this")
    np.testing.assert_array_equal(found.shared["weights"], [0, 1, 2])
    with pytest.raises(CheckpointError, match=r"was made with batch_size=8, and this run has 9: .* same data and arg"):
        make(resume=True, batch_size=9)[0].load()


def test_with_servers_another_number_of_workers_is_seen_later_and_a_run_without_servers_is_refused(make):
    keeper, _ = make()
    keeper.keep(kept(keeper, order={**keeper.data_order(), "workers": 2}))
    keeper.finish()
    resumes, _ = make(resume=True)
    with pytest.raises(CheckpointError, match="was made with workers=2, and this run has None"):
        resumes.load()
    resumes._session.peers, resumes._session.size = {"ps": ["h:1"]}, 3
    assert resumes.data_order()["workers"] == 3
    assert resumes.load().steps == 10


def test_all_comes_back(make, tmp_path):
    stretch = BatchRange(dataset=0, turn=0, epoch=2, batch_size=8, first=3, taken=4, done=4)
    more = {
        "history": {"loss": [0.5, float("nan")], "rate": [np.float32(0.25), 1]},
        "epochs": [0, 1],
        "read": [("before", 2, {0: [stretch], 1: []})],
        "own": [{"seeds": [np.arange(2)]}, {"seeds": [np.arange(2.0)]}],
    }
    keeper, _ = make()
    before = kept(keeper, **more)
    before.write(tmp_path)
    found = FitCheckpoint.load(tmp_path)
    np.testing.assert_equal(found.shared, before.shared)
    assert (found.order, found.read, found.configuration) == (before.order, before.read, before.configuration)
    assert found.history["rate"] == [0.25, 1]
    np.testing.assert_equal(found.own, before.own)


def test_a_damaged_one_is_passed_over(make, tmp_path):
    keeper, _ = make()
    for steps in (10, 20):
        keeper.keep(kept(keeper, steps=steps))
        keeper.finish()
    newest = max((tmp_path / "kept").glob("*/arrays.npz"))
    data = bytearray(newest.read_bytes())
    data[-200] ^= 0x40
    newest.write_bytes(data)
    again, _ = make(resume=True)
    assert again.load().steps == 10
    assert "is damaged" in again._session.notices[0]


def test_one_that_is_not_of_fit(make, tmp_path):
    keeper, _ = make(resume=True)
    keeper._session.folder.save(lambda folder: (folder / "weights.pt").write_text("x"), tmp_path)
    with pytest.raises(CheckpointError, match=r"has the files weights.pt, is none of dt.fit.* made with dt.train"):
        keeper.load()


def test_one_that_can_not_be_written_ends_training(make, tmp_path):
    (tmp_path / "file").touch()
    keeper, _ = make(below="file/below")
    keeper.keep(kept(keeper))
    with pytest.raises(CheckpointError, match="can't be written"):
        keeper.finish()
    with pytest.raises(CheckpointError, match="can't be written"):
        keeper.due(11, epoch_ends=False)


class Counting:
    def __init__(self, count):
        self.count = count


class Locked(Counting):
    pass


def test_callbacks_take_what_those_of_their_class_held():
    counting = [Counting(0), Locked(threading.Lock()), Counting(0)]
    progress = progress_of(counting)
    counting[0].count, counting[2].count = 1, 2
    held = held_by(progress, Variables())
    assert [each.name for each in held[:-1]] == ["Counting", "Locked", "Counting"]
    assert matched([Locked(0), Counting(0), Counting(0), Counting(0)], held, Variables()) == (
        [b"", held[0].state, held[2].state, b"", held[3].state],
        ["Locked"],
    )
    with pytest.raises(CheckpointError, match="What callback Counting held can't be read from the checkpoint"):
        matched([Counting(0)], [CallbackState("Counting", b"not pickled")], Variables())


def test_one_that_was_stored_long_ago_is_read(tmp_path):
    """As it was first written in this format, in mid-epoch; code that moves and fields that come must not lose it."""
    place = CheckpointPlace(url=str(Path(__file__).parent / "stored_checkpoints"))
    kept = FitCheckpoint.load(CheckpointFolder(place).load(tmp_path).folder)
    assert (kept.epoch, kept.batch, kept.steps, kept.epochs) == (1, 1, 4, [0])
    assert kept.order["rows"] == 12
    assert kept.shared["model"]["rates"] == [pytest.approx(0.01)]
    assert sorted(kept.history) == ["loss", "mae"]
    assert "EarlyStopping" in [name for name, _ in kept.shared["callbacks"]]
    ((_, size, by_rank),) = kept.read
    assert (size, [stretch.done for stretch in by_rank[1]]) == (2, [3, 1])
    assert len(kept.own) == 2
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(2, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    restore_parts(model, *kept.shared["model"]["parts"])
    assert int(model.optimizer.iterations) == 4
    np.testing.assert_allclose(model(np.ones((1, 3))), [[0.13727295]], rtol=1e-5)
