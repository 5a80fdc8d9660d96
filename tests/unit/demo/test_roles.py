"""What roles of the main job keep account of, and what they make of rows; no TensorFlow, no Dask worker."""

from __future__ import annotations

from queue import Empty
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.demo import roles
from dask_train.demo.roles import DemoBoards, Stopwatch, WorkerProgress, flat, means_applied, mini_batches, one_hot


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(roles, "time", SimpleNamespace(time=lambda: made.now))
    return made


def test_rows_and_labels_as_the_network_takes_them():
    images = np.array([[[0, 255]] * 392, [[51, 0]] * 392], np.uint8).reshape(2, 28, 28)
    rows = flat(images)
    assert (rows.shape, rows.dtype) == ((2, 784), np.float32)
    assert rows[0, :2].tolist() == [0, 1]
    assert rows[1, 0] == np.float32(0.2)
    assert one_hot(np.array([3, 0])).tolist() == [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]


def test_spans_follow_each_other_and_short_ones_are_left_to_the_next(clock):
    watch = Stopwatch("starting")
    clock.now = 102.0
    watch.now("training")
    clock.now = 102.5
    watch.now("training")
    clock.now = 103.0
    watch.now("waiting")
    clock.now = 103.01
    watch.now("training")
    clock.now = 105.0
    assert watch.done() == [("starting", 100.0, 102.0), ("training", 102.0, 103.0), ("training", 103.0, 105.0)]


def test_progress_is_told_twice_a_second_at_most(clock):
    progress = []
    account = WorkerProgress(3, progress)
    for seconds in (0.0, 0.4, 0.6):
        clock.now = 100.0 + seconds
        account.add(10)
    assert progress == [
        {"worker": 3, "rows": 10, "steps": 1, "time": 100.0},
        {"worker": 3, "rows": 30, "steps": 3, "time": 100.6},
    ]
    assert account.entry()["steps"] == 3


@pytest.mark.parametrize(
    ("scores", "stop", "good_enough", "over"),
    [
        ([], [], False, False),
        ([0.01, 0.3], [], False, False),
        ([0.3, 0.1], [], True, True),
        ([], ["the client has ended the training"], False, True),
    ],
)
def test_when_the_training_is_over(scores, stop, good_enough, over):
    boards = DemoBoards([{"loss": loss} for loss in scores], [], stop, target=0.1)
    assert (boards.good_enough(), boards.over()) == (good_enough, over)


class Queue:
    """Batches, or nothing in time where there is None; then the client ends the training."""

    def __init__(self, boards, *batches):
        self.boards, self.batches = boards, list(batches)

    def get(self, timeout):
        batch = self.batches.pop(0)
        if not self.batches:
            self.boards.stop.append("the client has ended the training")
        if batch is None:
            raise Empty
        return batch


def test_batches_are_cut_into_views_until_the_training_is_over():
    boards, images = DemoBoards([], [], [], 0.1), np.arange(5)
    found = list(mini_batches(Queue(boards, (images, images * 10), None), 2, boards, Stopwatch("starting")))
    assert [(rows.tolist(), labels.tolist()) for rows, labels in found] == [
        ([0, 1], [0, 10]),
        ([2, 3], [20, 30]),
        ([4], [40]),
    ]
    assert all(np.shares_memory(rows, images) for rows, _ in found)


def test_a_batch_is_left_where_the_training_is_over():
    boards = DemoBoards([], [], [], 0.1)
    batches = mini_batches(Queue(boards, (np.arange(4), np.arange(4)), None), 1, boards, Stopwatch("starting"))
    next(batches)
    boards.stop.append("enough")
    assert list(batches) == []


@pytest.mark.parametrize(("sync", "chief"), [(None, True), (object(), False)])
def test_only_the_chief_of_synchronous_training_applies_means(sync, chief):
    opened = []
    with means_applied(SimpleNamespace(sync=sync), opened.append, chief=chief):
        pass
    assert opened == []
