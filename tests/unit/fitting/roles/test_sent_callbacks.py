"""Callbacks on their way to the first worker, and what they hold on the way back and in checkpoints."""

from __future__ import annotations

import threading

import cloudpickle
import pytest

from dask_train.errors import CheckpointError
from dask_train.fitting.roles.sent_callbacks import (
    CallbackState,
    ended_by,
    has_ended,
    held_by,
    matched,
    open_callbacks,
    progress_of,
    send_callbacks,
    states_of,
    take_states,
)
from dask_train.fitting.roles.variables import Variables


class Counting:
    """A callback that has counted to ``count``; Keras has set a model on it, which can't be sent."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.params = {"epochs": 3}
        self._model = threading.Lock()


class Locking(Counting):
    """A callback that holds a lock from the start."""

    def __init__(self) -> None:
        super().__init__(0)
        self.lock = threading.Lock()


class Stopping(Counting):
    """A callback of Keras that monitors a score: it derives ``min_delta`` at the end of the first epoch."""

    def __init__(self, patience: int, min_delta: float) -> None:
        super().__init__(0)
        self.patience, self.min_delta, self.monitor_op, self.best = patience, min_delta, None, None

    def _set_monitor_op(self) -> None:
        self.monitor_op, self.min_delta = min, -self.min_delta

    def on_epoch_end(self) -> None:
        if self.monitor_op is None:
            self._set_monitor_op()
        self.count, self.best = self.count + 1, 0.5


class Explosive:
    """Can be pickled, and not be read."""

    def __reduce__(self):
        return int, ("no number",)


def test_they_arrive_without_the_model_of_an_earlier_fit():
    (there,), _ = open_callbacks(send_callbacks([Counting(3)]))
    assert (type(there).__name__, there.count, there.params, there._model) == ("Counting", 3, None, None)
    assert open_callbacks(b"") == ([], Variables())


def test_one_that_can_not_be_sent_is_named():
    with pytest.raises(TypeError, match=r"Callback Locking can't be sent .* open that in on_train_begin") as told:
        send_callbacks([Counting(1), Locking()])
    assert told.value.__cause__ is not None


class Part:
    """A layer or a model that is trained; a copy of it is another one."""


def test_parts_of_the_model_are_those_of_the_model_where_callbacks_run():
    model, layer, other, theirs = Part(), Part(), Part(), {"model": Part(), "layer 1": Part(), "layer 2": Part()}
    mine = Counting(0)
    mine.look, mine.layers, mine.other = lambda: model, {"one": layer}, other
    variables = Variables.of([mine], {"model": model, "layer 1": layer})
    (there,), opened = open_callbacks(send_callbacks([mine], variables), theirs)
    assert there.look() is theirs["model"]
    assert there.layers["one"] is theirs["layer 1"]
    assert there.other not in (other, *theirs.values())
    assert opened.parts == {"model": theirs["model"], "layer 1": theirs["layer 1"]}, "which can come back"
    there.last = [theirs["model"]]
    take_states([mine], states_of([there], opened), variables)
    assert mine.last == [model]
    assert mine.layers["one"] is layer


def test_parts_of_the_model_in_a_checkpoint_are_those_of_the_model_that_continues():
    mine, theirs = {"model": Part()}, {"model": Part()}
    earlier, later = Counting(0), Counting(0)
    progress = progress_of([earlier])
    earlier.last = mine["model"]
    kept = held_by(progress, Variables(parts=mine))
    states, lost = matched([later], kept, Variables(parts=theirs))
    take_states([later], states, Variables(parts=theirs))
    assert (lost, later.last) == ([], theirs["model"])
    with pytest.raises(CheckpointError, match="refers to model of a model, which the model here does not have"):
        matched([later], kept, Variables())


def test_another_model_that_has_a_layer_of_the_one_that_is_trained_is_refused_and_left_out_of_checkpoints():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3, name="inner"), keras.layers.Dense(1)])
    mine = Counting(1)
    progress = progress_of([mine])
    mine.inner = keras.Model(model.inputs, model.layers[0].output, name="looking")
    variables = Variables(parts={"model": model, "layer 1": model.layers[0]})
    with pytest.raises(TypeError, match=r"Callback Counting .* holds the model 'looking', which has the layer 'inner'"):
        send_callbacks([Counting(0), mine], variables)
    (kept, _) = held_by(progress, variables)
    later = Counting(0)
    take_states(progress_of([later]), [kept.state, b""], variables)
    assert "inner" not in vars(later)


def test_what_they_have_come_to_hold_comes_back():
    mine, there = [Counting(1), Counting(2)], [Counting(10), Counting(20)]
    mine[0].own = "stays"
    model = mine[0]._model
    take_states(mine, states_of(there, Variables()), Variables())
    assert [callback.count for callback in mine] == [10, 20]
    assert (mine[0].own, mine[0]._model, mine[0].params) == ("stays", model, {"epochs": 3})


def test_one_that_holds_by_now_what_can_not_be_sent_stays_as_it_was():
    mine = Counting(1)
    take_states([mine], states_of([Locking()], Variables()), Variables())
    assert mine.count == 1


def test_those_of_a_checkpoint_are_matched_by_class_the_first_to_the_first():
    earlier = [Counting(0), Locking(), Counting(0)]
    progress = progress_of(earlier)
    earlier[0].count, earlier[2].count = 1, 2
    kept = held_by(progress, Variables())
    callbacks = [Locking(), Counting(0), Counting(0), Counting(0)]
    states, lost = matched(callbacks, kept, Variables())
    assert lost == ["Locking"]
    take_states(callbacks, states, Variables())
    assert [callback.count for callback in callbacks] == [0, 1, 2, 0], "the last one is new and begins anew"


def test_arguments_of_one_that_resumes_are_its_own():
    earlier, later = Stopping(2, 0.1), Stopping(9, 0.3)
    progress = progress_of([earlier])
    earlier.on_epoch_end()
    continuing = progress_of([later])
    states, _ = matched([later], held_by(progress, Variables()), Variables())
    take_states(continuing, states, Variables())
    later.on_epoch_end()
    assert (later.patience, later.min_delta, later.count, later.best) == (9, -0.3, 2, 0.5)


def test_progress_of_a_call_that_resumed_continues_in_a_third_one():
    states: list[bytes] = []
    callback = Stopping(2, 0.1)
    for _ in range(2):
        progress = progress_of([callback])  # the second time it begins with what it is to continue with
        take_states(progress, states, Variables())
        if not states:
            callback.on_epoch_end()
        states, _ = matched([Stopping(2, 0.1)], held_by(progress, Variables()), Variables())
    third = Stopping(2, 0.1)
    take_states([third], states, Variables())
    assert (third.count, third.best) == (1, 0.5)


def test_callbacks_that_ended_training_are_known_by_their_arguments():
    earlier = [Stopping(2, 0.1), Counting(0)]
    progress = progress_of(earlier)
    earlier[0].on_epoch_end()
    saved = [*held_by(progress, Variables()), ended_by(progress)]
    assert not has_ended(progress, saved[:-1])
    assert has_ended(progress_of([Counting(0), Stopping(2, 0.1), Locking()]), saved), "another one ends nothing less"
    assert has_ended(progress_of(earlier), saved), "they may have been used"
    assert not has_ended(progress_of([Stopping(3, 0.1), Counting(0)]), saved)
    assert not has_ended(progress_of([Counting(0)]), saved)


def test_those_of_keras_that_never_stop_end_nothing():
    class CSVLogger(Counting):
        __module__ = "keras.src.callbacks.csv_logger"

    saved = [ended_by(progress_of([CSVLogger(1), Counting(0)]))]
    assert has_ended(progress_of([Counting(0)]), saved)


def test_what_a_checkpoint_holds_and_can_not_be_read_is_told():
    kept = [CallbackState("Counting", cloudpickle.dumps({"count": Explosive()}))]
    with pytest.raises(CheckpointError, match="What callback Counting held can't be read from the checkpoint: V"):
        matched([Counting(0)], kept, Variables())
    assert matched([Locking()], kept, Variables()) == ([b"", b""], []), "of another class, which nobody has now"
