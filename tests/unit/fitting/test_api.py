"""What ``fit`` of a Keras model makes of its arguments, before anything starts; refusals: ``test_checks.py``, too."""

from __future__ import annotations

from types import SimpleNamespace

import dask
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt
from dask_train.fitting import keras_models
from dask_train.fitting import start as api

X, Y = np.zeros((20, 4), "f4"), np.arange(20) % 3


@pytest.fixture
def started(monkeypatch):
    """What is to be started: the way, the task and the keywords."""
    found = SimpleNamespace()

    def start(way):
        def started(functions, roles, inputs, run, **given):
            (task,) = {id(role.task): role.task for role in functions.values()}.values()
            vars(found).update(given, way=way, task=task, roles=roles, inputs=inputs, run=run)

        return started

    for way in ("launch", "run_in_process"):
        monkeypatch.setattr(api, way, start(way))
    monkeypatch.setattr(api, "client_or_local", lambda client, workers: client or "a local cluster")
    monkeypatch.setattr(api, "default_fit_workers", lambda *_: 3)
    monkeypatch.setattr(api, "default_workers", lambda *_: 5)
    return found


def rows_of(inputs):
    return [each.num_rows for each in (inputs.data["worker"], *inputs.datasets.values())]


def network(loss="sparse_categorical_crossentropy"):
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, activation="softmax")], name="net")
    model.compile("sgd", loss)
    return model


def test_where_nothing_is_said_batches_are_those_of_keras_and_the_cluster_has_its_workers(started):
    dt.fit(network(), X, Y, validation_data=(X[:7], Y[:7]))
    task = started.task
    assert (started.way, started.roles, started.run.name) == ("launch", {"worker": 3}, "fit")
    assert (task.batch_size, task.validation_batch_size, task.epochs, task.checkpoint) == (32, 32, 1, None)
    assert rows_of(started.inputs) == [20, 7]
    dt.fit(network(), X, Y, batch_size=8, ps=2, name="mine")
    assert (started.roles, started.run.name) == ({"ps": 2, "worker": 5}, "mine")
    assert (started.task.batch_size, started.task.validation_batch_size, started.inputs.datasets) == (8, 8, {})


def test_the_last_rows_are_split_off_with_their_weights_as_keras_does(started):
    dt.fit(network(), X, Y, sample_weight=np.ones(20), validation_split=0.21, workers=2)
    assert rows_of(started.inputs) == [15, 5]
    assert started.task.validation_columns.weights == started.task.columns.weights == 2
    dt.fit(network(), X, Y, validation_split=0.5, validation_data=(X[:3], Y[:3]), workers=2)
    assert rows_of(started.inputs) == [20, 3]


def test_in_this_process_the_very_model_is_trained_and_is_taken_apart_for_checkpoints_alone(started, tmp_path):
    model, callbacks = network(), [keras.callbacks.History()]
    dt.fit(model, X, Y, workers=0, callbacks=callbacks)
    task = started.task
    assert (started.way, started.roles, started.run.client) == ("run_in_process", {"worker": 0}, None)
    assert (task.in_process.model, task.in_process.callbacks) == (model, callbacks)
    assert (task.header, task.arrays, task.callbacks) == ({}, [], b"")
    dt.fit(model, X, Y, workers=0, checkpoint=str(tmp_path))
    assert started.task.header
    dt.fit(model, X, Y, workers=1)
    assert (started.task.in_process, bool(started.task.header), started.task.callbacks) == (None, True, b"")
    dt.fit(model, X, Y, workers=1, callbacks=callbacks)
    assert started.task.callbacks
    with pytest.raises(ValueError, match="workers=0"):
        dt.fit(model, X, Y, workers=0, ps=1)


@pytest.mark.parametrize(("resume", "wanted"), [(False, (False, False)), (True, (True, False))])
def test_what_goes_on_has_the_checkpoint_s_learning_rate_unless_it_is_told_otherwise(started, resume, wanted):
    dt.fit(network(), X, Y, workers=1, checkpoint="kept", resume=resume)
    assert (started.task.resume, started.task.new_learning_rate) == wanted
    assert started.run.resume is wanted[0]
    dt.fit(network(), X, Y, workers=1, checkpoint="kept", resume="new_learning_rate")
    assert (started.task.resume, started.task.new_learning_rate, started.run.resume) == (True, True, True)


def test_roles_tell_of_a_stall_later_than_the_run_does(started):
    with dask.config.set({"train.progress.timeout": "40s"}):
        dt.fit(network(), X, Y, workers=2, stop="loss < 0.1 or seconds > 9")
    assert started.task.collective_timeout_s == 60.0
    assert started.task.stop_names >= {"loss"}
    runs = {started.task.run}
    dt.fit(network(), X, Y, workers=2)
    assert len({*runs, started.task.run}) == 2, "each call has its own checkpoints"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"validation_data": (X[:0], Y[:0])}, "validation_data has no rows"),
        ({"resources": {"ps": {"GPU": 1}}}, "'ps'"),
        ({"stop": "val_loss < 1"}, "stop looks at val_loss, which nothing computes"),
        ({"checkpoint": dt.Checkpoint("kept", best="val_loss")}, "val_loss"),
        ({"workers": 40}, "batch_size=32 is the global batch, and 40 workers share it"),
        ({"workers": 2, "batch_size": 1}, "some would have no row"),
        ({"sample_weight": np.ones(19)}, "20, 20, 19 rows; they have to be the same"),
    ],
)
def test_what_can_not_be_is_told_before_a_model_is_taken_apart(started, settings, told, monkeypatch):
    monkeypatch.setattr(keras_models, "taken_apart", lambda model: pytest.fail("nothing is sent"))
    with pytest.raises(ValueError, match=told):
        dt.fit(network(), X, Y, **{"workers": 2, **settings})
    assert vars(started) == {}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"validation_data": (X[:, :3], Y)}, "The validation data does not fit model 'net'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"shuffle": "batch"}, "shuffle is 'batch'"),
        ({"workers": 40}, "40 workers share it"),
    ],
)
def test_what_needs_no_cluster_to_be_refused_starts_none(started, settings, told, monkeypatch):
    monkeypatch.setattr(api, "client_or_local", lambda *_: pytest.fail("a cluster of this machine is started"))
    with pytest.raises(ValueError, match=told):
        dt.fit(network(), X, Y, **settings)


def test_a_loss_that_several_workers_can_not_share_is_asked_for_where_there_are_several(started, monkeypatch):
    asked = []
    monkeypatch.setattr(keras_models, "check_losses", lambda *given: asked.append(given))
    for more in ({"workers": 1}, {"workers": 2, "ps": 1}, {"workers": 0}):
        dt.fit(network(), X, Y, **more)
    assert asked == []
    dt.fit(network(), X, Y, workers=2)
    assert len(asked) == 1
