"""The only worker of a run trains what Keras' own ``fit`` trains, and accounts for it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import dask
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt
from dask_train.errors import DataError
from dask_train.fitting.roles.control import Flags
from dask_train.fitting.roles.entry import KerasTrialRole
from dask_train.fitting.roles.metrics import StepLogs
from dask_train.fitting.roles.sent_callbacks import take_states
from dask_train.fitting.roles.synchronous import SynchronousWorker, fit_synchronously
from dask_train.fitting.roles.variables import Variables
from dask_train.keras_models.parts import parts_by_key
from dask_train.keras_models.serialization import parts_to_model, restore_parts
from dask_train.searching.model_trials import TrialSession
from dask_train.searching.worker import TrialRequest

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(50, 4)).astype("f4"), RANDOM.normal(size=(50, 1)).astype("f4")
WEIGHTS = RANDOM.random(50).astype("f4")


def made(**compiled):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(3, "tanh"), layers.BatchNormalization(), layers.Dense(1)]
    )
    # Most of a test's time is that of tracing, to which Adam alone adds a third.
    optimizer = keras.optimizers.SGD(0.05, momentum=0.5)
    model.compile(**({"optimizer": optimizer, "loss": "mse", "jit_compile": False} | compiled))
    return model


def unbuilt():
    """Return a model without weights; nothing is known of delayed rows, so that they are made when training begins."""
    model = keras.Sequential([layers.Dense(2), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.5), "mse", run_eagerly=True)
    return model


def check_alike(outcome, wanted, told):
    found = parts_to_model(outcome.header, outcome.arrays)
    for one, other in zip(found.weights, wanted.weights, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes(), one.path
    assert outcome.history == told.history
    assert outcome.epoch == told.epoch


@pytest.mark.parametrize("is_built", [True, False])
def test_callbacks_that_refer_to_the_model_by_other_names_act_on_the_one_that_is_trained(fitted, is_built):
    model = made(run_eagerly=True) if is_built else unbuilt()

    class Watching(keras.callbacks.Callback):
        def __init__(self, watched):
            super().__init__()
            self.watched, self.layers, self.optimizer, self.seen = watched, watched.layers, watched.optimizer, []

        def on_epoch_end(self, epoch, logs=None):
            loss = self.watched.evaluate(X, Y, verbose=0)
            self.seen = [loss, float(keras.ops.sum(self.layers[0].kernel)), int(self.optimizer.iterations)]

    watching = Watching(model)
    stopping = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, _: setattr(model, "stop_training", epoch == 1),
    )
    outcome = fitted(model, X, Y, batch_size=25, epochs=5, callbacks=[watching, stopping]).outcome
    take_states([watching], outcome.callbacks, Variables(parts=parts_by_key(model)))
    trained = parts_to_model(outcome.header, outcome.arrays)
    assert outcome.epoch == [0, 1]
    assert watching.seen[0] == pytest.approx(trained.evaluate(X, Y, verbose=0))
    assert watching.seen[1:] == [float(keras.ops.sum(trained.layers[0].kernel)), 4]
    assert (watching.watched, watching.optimizer) == (model, model.optimizer)
    assert all(one is other for one, other in zip(watching.layers, model.layers, strict=True))


@pytest.mark.parametrize(
    ("columns", "compiled", "settings"),
    [
        ((X, Y), {"optimizer": "adam"}, {"batch_size": 8, "epochs": 2}),
        ((X, Y), {"metrics": ["mae"], "steps_per_execution": 3}, {"batch_size": 8, "epochs": 2}),
        ((X, Y, WEIGHTS), {"optimizer": "adam", "weighted_metrics": ["mae"]}, {"batch_size": 50, "epochs": 3}),
        ((X, Y), {"run_eagerly": True}, {"batch_size": 16, "epochs": 3, "initial_epoch": 1}),
        ((X, Y), {}, {"batch_size": 8, "epochs": 2, "steps_per_epoch": 3}),
    ],
)
def test_the_only_worker_trains_what_keras_does(fitted, columns, compiled, settings):
    x, y, *weights = columns
    wanted = made(**compiled)
    told = wanted.fit(x, y, sample_weight=weights[0] if weights else None, shuffle=False, verbose=0, **settings)
    found = fitted(made(**compiled), *columns, parts=(20, 20, 43), shuffle=False, **settings)
    check_alike(found.outcome, wanted, told)


class Rates(keras.callbacks.Callback):
    """Sees what Keras' callbacks see, and sets learning rates in mid-epoch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.05 / (batch + 1)

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, float(logs["loss"]), float(self.model.optimizer.learning_rate)))

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append((epoch, sorted(logs)))


def test_callbacks_and_validation_are_those_of_keras(fitted):
    settings = {"batch_size": 8, "epochs": 4}
    theirs, ours = Rates(), Rates()
    stops = [keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0) for _ in range(2)]
    wanted = made()
    told = wanted.fit(
        X, Y, validation_data=(X[:9], Y[:9]), callbacks=[theirs, stops[0]], shuffle=False, verbose=0, **settings
    )
    found = fitted(
        made(),
        X,
        Y,
        validation=(X[:9], Y[:9]),
        validation_batch_size=8,
        callbacks=[ours, stops[1]],
        shuffle=False,
        **settings,
    )
    check_alike(found.outcome, wanted, told)
    assert found.outcome.epoch == [0, 1], "the rule has ended it"
    state, _, of_variables = map(pickle.loads, found.outcome.callbacks)
    assert of_variables == {}, "none were sent"
    assert state["seen"] == theirs.seen
    of_epochs = [report for report in found.link.reports if "step" not in report]
    assert [{name: report[name] for name in ("epoch", "loss", "val_loss")} for report in of_epochs] == [
        {"epoch": epoch, "loss": loss, "val_loss": val_loss}
        for epoch, loss, val_loss in zip([0, 1], *map(wanted.history.history.get, ("loss", "val_loss")), strict=True)
    ]


class Cuts(keras.callbacks.Callback):
    """Ends validation at its second batch, or as it begins."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_test_begin(self, logs=None):
        self.on_test_batch_end("begin")

    def on_test_batch_end(self, batch, logs=None):
        if batch == self.at:
            self.model.stop_evaluating = True


@pytest.mark.parametrize("at", [1, "begin"])
def test_a_validation_that_a_callback_ends_is_followed_by_one_from_the_first_batch(fitted, at):
    settings = {"batch_size": 25, "epochs": 3, "shuffle": False}
    wanted, held_out = made(), (X[:9], Y[:9])
    told = wanted.fit(
        X, Y, validation_data=held_out, validation_batch_size=3, callbacks=[Cuts(at)], verbose=0, **settings
    )
    found = fitted(made(), X, Y, validation=held_out, validation_batch_size=3, callbacks=[Cuts(at)], **settings)
    np.testing.assert_allclose(found.outcome.history["val_loss"], told.history["val_loss"], rtol=1e-5)


@pytest.mark.parametrize(("stops", "gathers"), [(True, True), (False, False)])
def test_the_batch_with_which_a_validation_ends_is_added_up(stops, gathers):
    worker = object.__new__(SynchronousWorker)
    worker._control = Flags()
    worker._control.stop_evaluating = stops
    worker.metrics = SimpleNamespace(gather=lambda step_logs: "of all workers")
    found = worker.validated(StepLogs("of this worker"), ends=True, last=False)
    assert found == ("of all workers" if gathers else "of this worker")


def test_its_account_is_of_the_batches_of_training(fitted):
    found = fitted(made(), X, Y, parts=(30,), validation=(X[:9], Y[:9]), batch_size=20, epochs=2)
    of_training = [(one.epoch, one.taken, one.done) for one in found.batches if one.dataset == 0]
    assert of_training == [(0, 3, 3), (1, 3, 3)]
    ((rank, applied),) = found.outcome.applied.items()
    assert (rank, [(one.epoch, one.first, one.done) for one in applied]) == (0, [(0, 0, 3), (1, 0, 3)])
    assert (found.outcome.steps, found.outcome.num_rows, found.outcome.num_steps) == (6, 50, 3)
    assert "working on batch 6" in found.link.doing


def test_a_run_that_stops_ends_after_the_step_in_hand(fitted):
    found = fitted(made(), X, Y, batch_size=8, epochs=3, stop_reason="enough")
    assert found.outcome.steps == 1
    assert [(one.epoch, one.done) for one in found.outcome.applied[0]] == [(0, 1)]
    assert found.outcome.epoch == [0]


def test_class_weights_are_those_of_keras(fitted):
    labels, weights = (Y > 0).astype("f4"), {0: 0.25, 1: 2.0}
    wanted = made(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    told = wanted.fit(X, labels, class_weight=weights, batch_size=8, shuffle=False, verbose=0)
    found = fitted(
        made(loss=keras.losses.BinaryCrossentropy(from_logits=True)),
        X,
        labels,
        class_weight=weights,
        batch_size=8,
        shuffle=False,
    )
    check_alike(found.outcome, wanted, told)


def test_labels_that_are_no_classes_are_refused(fitted):
    model = made(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(DataError, match="A batch has labels from 0 to 4, and the model tells 3 classes apart"):
        fitted(model, X, np.arange(50) % 5, batch_size=50, num_classes=3)


def test_a_rule_that_looks_at_what_there_is_not_is_refused_after_an_epoch(fitted):
    with pytest.raises(ValueError, match="stop looks at val_los, and after the first epoch there are loss, val_loss"):
        fitted(made(), X, Y, validation=(X, Y), stop_names=frozenset({"val_los"}))


def of_a_search(task):
    """Train as a trial of a search does, and return what it knows."""

    def role(session):
        request = TrialRequest(number=0, work=KerasTrialRole(task), metric="val_loss", mode="min", to_beat=None)
        trial = TrialSession(session, request, {}, {})
        fit_synchronously(task, trial, trial.watch)
        return trial

    return role


@pytest.mark.parametrize("on_epoch", [False, True])
def test_the_model_of_a_trial_is_the_one_that_was_scored(fitted, on_epoch):
    optimizer = keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5)
    model = made(optimizer=optimizer, run_eagerly=True)
    averages = keras.callbacks.SwapEMAWeights(swap_on_epoch=on_epoch)
    settings = {"validation": (X, Y), "validation_batch_size": 50, "batch_size": 25, "epochs": 2}
    found = fitted(model, X, Y, callbacks=[averages], role=of_a_search, **settings)
    trial, values = found.outcome, [report["val_loss"] for report in found.link.reports if "val_loss" in report]
    if not on_epoch:
        assert (trial.best.value, trial.best.parts) == (None, None)
        assert "callbacks left other weights in the model than 'val_loss' is of" in trial.not_as_scored
        assert found.link.notices == [trial.not_as_scored]
        return
    assert trial.best.value == min(values)
    assert found.link.notices == []
    restore_parts(model, *trial.best.parts["model"]["parts"])
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(min(values), rel=1e-5)


class Shrinks(keras.callbacks.Callback):
    """Leaves other weights in the model than were validated."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.set_weights([0.5 * value for value in self.model.get_weights()])


def test_the_best_checkpoint_has_the_weights_that_were_validated(pool, tmp_path):
    def trained(name, callback):
        model = made(optimizer=keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5), run_eagerly=True)
        kept = dt.Checkpoint(tmp_path / name, best="val_loss", restore_best=True)
        settings = {"validation_data": (X, Y), "batch_size": 25, "epochs": 3, "workers": 0, "verbose": 0}
        return dt.fit(model, X, Y, callbacks=[callback], checkpoint=kept, **settings)

    with pytest.warns(UserWarning, match="no epoch has ended with a number for 'val_loss'"):
        result = trained("shrinks", Shrinks())
    assert result.best_epoch is None
    assert "callbacks left other weights in the model than were validated" in result.notices[0]
    result = trained("swaps", keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
    assert result.best_epoch == np.argmin(result.history["val_loss"])
    assert result.model.evaluate(X, Y, verbose=0) == pytest.approx(min(result.history["val_loss"]), rel=1e-5)
    assert result.notices == []


class Holding(keras.callbacks.Callback):
    """Holds a layer, weights and the optimizer from when training begins, and ``passed`` layers."""

    def __init__(self, *passed):
        super().__init__()
        self.passed, self.held = passed, []

    def parts(self):
        layer, optimizer = self.model.layers[-1], self.model.optimizer
        return [layer, layer.kernel, optimizer, *optimizer.variables]

    def on_train_begin(self, logs=None):
        self.held = self.parts()

    def on_train_end(self, logs=None):
        assert all(one is other for one, other in zip(self.held, self.parts(), strict=True))


def continued(folder, model, *callbacks, epochs):
    rows = [dask.delayed({"x": X, "y": Y})]
    checkpoints = {"checkpoint": folder, "resume": folder.exists()}
    settings = {"batch_size": 25, "epochs": epochs, "workers": 0, "verbose": 0, **checkpoints}
    return dt.fit(model, rows, features="x", label="y", callbacks=list(callbacks), **settings)


def test_a_callback_that_resumes_holds_parts_that_the_trained_model_got_when_it_was_built(pool, tmp_path):
    model = unbuilt()
    for epochs, one in enumerate([model, model, unbuilt()], 1):
        assert continued(tmp_path / "kept", one, Holding(), epochs=epochs).epoch == list(range(epochs))


def test_a_call_that_callbacks_have_ended_takes_no_step_again_though_its_model_is_built_by_now(pool, tmp_path):
    model = unbuilt()
    for _ in range(2):
        stops = keras.callbacks.EarlyStopping("loss", min_delta=9.0)
        result = continued(tmp_path / "kept", model, Holding(model.layers[-1]), stops, epochs=5)
        assert result.epoch == [0, 1]
