"""The progress of a callback continues in another call, whose arguments hold."""

from __future__ import annotations

import threading

from dask_train.trainers.common.callback_progress import CallbackProgress


class Waiting:
    """A callback that waits for ``patience`` rounds."""

    def __init__(self, patience, names=()):
        self.patience, self.wait, self.seen, self.names = patience, 0, [], list(names)
        self.model = threading.Lock()

    def begin(self):
        self.wait = 0

    def round(self):
        self.wait += 1
        self.seen.append(self.wait)
        self.best = {"score": 1.0}


def begun(*args):
    return CallbackProgress(Waiting(*args), left_out=("model",))


def test_only_what_training_changed_is_taken_over():
    earlier, later = begun(2, ["loss"]), begun(9, ["accuracy"])
    earlier.callback.round()
    kept = earlier.changed()
    assert kept == {"wait": 1, "seen": [1], "best": {"score": 1.0}}
    later.take(kept)
    taken = later.callback
    assert (taken.patience, taken.names, taken.wait, taken.seen) == (9, ["accuracy"], 1, [1])


def test_what_changed_once_stays_progress():
    """A callback that an earlier call has left may hold again what it was passed with."""
    used = Waiting(2)
    used.wait = 1
    progress = CallbackProgress(used)
    used.begin()
    progress.note()
    used.wait = 1
    assert progress.changed()["wait"] == 1


def test_what_was_taken_over_stays_progress():
    first, second = begun(2), begun(2)
    first.callback.round()
    second.callback.round()  # as the same callback in a further call: it begins as it resumes
    again = CallbackProgress(second.callback, left_out=("model",))
    again.take(first.changed())
    assert set(again.changed()) == {"wait", "seen", "best"}


def test_what_can_not_be_compared_counts_as_changed():
    progress = CallbackProgress(Waiting(2))
    assert set(progress.changed()) == {"model"}
    assert set(progress.arguments()) == {"patience", "wait", "seen", "names"}


def test_arguments_are_known_again():
    progress = begun(2)
    progress.callback.round()
    arguments = progress.arguments()
    assert set(arguments) == {"patience", "names"}
    assert begun(2).has_arguments(arguments)
    assert not begun(3).has_arguments(arguments)
    assert CallbackProgress(progress.callback).has_arguments(arguments), "though it has been used"


def test_a_part_of_the_model_is_the_same_argument_whatever_it_holds():
    """Also in a closure, and in another call that trains a model with other weights."""

    def of(part, limit):
        callback = Waiting(2)
        callback.part, callback.look = part, lambda: len(part) < limit
        return CallbackProgress(callback, left_out=("model",), parts={"layer 0": part})

    part = [0.5]
    earlier = of(part, 3)
    part.append(0.7)
    assert earlier.changed() == {}
    arguments = earlier.arguments()
    assert {"part", "look"} <= arguments.keys()
    assert of([0.1], 3).has_arguments(arguments)
    assert not of([0.1], 4).has_arguments(arguments)
