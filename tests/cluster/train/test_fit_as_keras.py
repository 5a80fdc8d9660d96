"""Programs around ``fit``: what callbacks see, what histories hold and which steps are taken are those of Keras."""

from __future__ import annotations

import functools
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt
from dask_train.data.columns import Columns
from dask_train.fitting.backends import BACKENDS
from dask_train.fitting.keras_models import keras_framework
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.serialization import load_parts, model_to_parts

pytestmark = [pytest.mark.slow, pytest.mark.backends]

ROWS, BATCH_SIZE = 99, 16  # 7 batches, the last one of 3 rows: the two workers' shares of it differ
VALIDATION_ROWS = 33  # 3 batches, the last one of a row
TOLERANCE = 2e-4  # float32
X, TARGET, CLASS = range(3)


def columns(num_rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """Inputs, numbers and classes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_rows, 4)).astype("f4")
    return x, (x[:, :1] * 2 + np.arange(num_rows)[:, None] / 50).astype("f4"), (x.sum(1) > 0).astype("i8")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, how it is trained, and callbacks, of which the attribute ``seen`` is compared.

    What callbacks do leaves the history as it is without them where it is ``undisturbed``; Keras' own mixes it in.
    """

    make: Callable[[], Any]
    y: int | tuple[int, ...] = TARGET
    epochs: int = 3
    settings: dict[str, Any] = field(default_factory=dict)
    validates: bool = False
    callbacks: Callable[[], list[Any]] = list
    undisturbed: bool = False
    backends: tuple[str, ...] = BACKENDS


def _dense(loss: Any = "mse", optimizer: Any = None, **compiled: Any) -> Any:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(optimizer or keras.optimizers.SGD(0.05), loss, **compiled)
    return model


class Looking(keras.callbacks.Callback):
    """Remembers each moment, and the numbers that came with it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def _see(self, moment: str, number: int | None, logs: Any) -> None:
        values = {name: np.asarray(value, float) for name, value in (logs or {}).items()}
        self.seen.append((moment, number, int(self.model.optimizer.iterations), values))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._see("epoch begins", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._see("epoch ends", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._see("batch begins", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._see("batch ends", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._see("test batch ends", batch, logs)


class Asking(keras.callbacks.Callback):
    """Lets the model evaluate and predict data of its own, and the validation data, between epochs and batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.data, self.validation = columns(21, 5)[:2], columns(VALIDATION_ROWS, 2)[:2]

    def _ask(self) -> None:
        x, y = self.data
        self.seen.append(self.model.evaluate(x, y + 100, verbose=0, return_dict=True))
        self.seen.append(self.model.evaluate(*self.validation, batch_size=5, verbose=0))
        self.seen.append(self.model.test_on_batch(x, y, sample_weight=np.arange(len(x), dtype="f4")))
        self.seen.append(self.model.predict(x, verbose=0).tolist())

    def on_train_begin(self, logs: Any = None) -> None:
        self._ask()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._ask()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 4:
            self._ask()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch in (2, 6):
            self._ask()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._ask()


class Stopping(keras.callbacks.Callback):
    """Ends training in the middle of the second epoch, before a batch, so that no batch's logs are asked for."""

    epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (1, 3):
            self.model.stop_training = True


class Running(layers.Layer):
    """Keeps a moving average of what passes."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.8 * self.mean + 0.2 * keras.ops.mean(inputs, axis=0))
        return inputs


def _tracking(*, eagerly: bool = False) -> Any:
    class Own(keras.metrics.Metric):
        """Counts rows, and sums over them."""

        def __init__(self, name: str = "own", dtype: Any = None) -> None:
            super().__init__(name=name, dtype=dtype)
            self.total = self.add_weight(name="total", initializer="zeros")
            self.count = self.add_weight(name="count", initializer="zeros")

        def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(keras.ops.sum(keras.ops.abs(y - y_pred)))
            self.count.assign_add(keras.ops.cast(keras.ops.shape(y)[0], "float32"))

        def result(self) -> Any:
            return self.total / self.count

    class Tracking(keras.Model):
        """Logs under names of its own, made of metrics that are updated in all ways."""

        def __init__(self) -> None:
            super().__init__()
            self.running, self.dense = Running(), layers.Dense(1)
            self.batches, self.rows = keras.metrics.Mean(name="batches"), keras.metrics.Mean(name="rows")
            self.twice, self.own = keras.metrics.Mean(name="twice"), Own()
            self.largest = keras.metrics.Sum(name="largest")

        def build(self, shape: Any) -> None:
            self.running.build(shape)
            self.dense.build(shape)

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.dense(self.running(inputs, training=training))

        def _logs(self, y: Any, y_pred: Any) -> Any:
            squares = keras.ops.square(y - y_pred)
            loss = keras.ops.mean(squares)
            self.batches.update_state(loss)
            self.rows.update_state(keras.ops.sum(squares, axis=1))
            self.twice.update_state(2 * loss, sample_weight=0.5)
            self.own.update_state(y, y_pred)
            self.largest.update_state(squares)
            logs = {
                "tracked": self.batches.result(),
                "rows": self.rows.result(),
                "twice": self.twice.result(),
                "own": self.own.result(),
                "sum": self.largest.result(),
                "last": loss,
            }
            return logs if eagerly else {**logs, "both": self.batches.result() / (1 + self.own.result())}

        def train_step(self, data: Any) -> Any:
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = keras.ops.mean(keras.ops.square(y - y_pred))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            logs = self._logs(y, y_pred)
            return {name: logs[name] for name in ("rows", "twice", "own", "last")} if eagerly else logs

        def test_step(self, data: Any) -> Any:
            return self._logs(data[1], self(data[0], training=False))

        def get_config(self) -> dict[str, Any]:
            return {}

    model = Tracking()
    model.build((None, 4))
    model.compile(keras.optimizers.SGD(0.05), run_eagerly=eagerly)
    return model


def _two_outputs() -> Any:
    x = layers.Input((4,))
    model = keras.Model(x, [layers.Dense(1, name="one")(x), layers.Dense(1, name="other")(x)])
    model.compile(
        keras.optimizers.SGD(0.05),
        ["mse", "mae"],
        metrics=[["mae"], [keras.metrics.MeanSquaredError(name="squared"), mean_error]],
        weighted_metrics=[[], ["mse"]],
    )
    return model


def mean_error(y: Any, y_pred: Any) -> Any:
    """A metric that is one number a batch."""
    return keras.ops.mean(keras.ops.abs(y - y_pred))


class Teaching(keras.callbacks.Callback):
    """Takes a step by itself after each epoch, fits after the first, makes the optimizer forget after the second."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        x, y = columns(21, 5)[:2]
        self.model.train_on_batch(x, y)
        if epoch == 0:
            self.model.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0)
        if epoch == 1:
            for variable in self.model.optimizer.variables[2:]:
                variable.assign(np.zeros(variable.shape))


class Setting(keras.callbacks.Callback):
    """Sets weights, the learning rate and what an optimizer keeps, within epochs and between them; and sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            self.model.optimizer.learning_rate = 0.03

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 3:
            self.model.set_weights([0.9 * value for value in self.model.get_weights()])
        if batch == 5:
            self.model.layers[0].kernel.assign(self.model.layers[0].kernel + 0.1)
            self.seen.append(float(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.variables[2].assign(0.5 * self.model.optimizer.variables[2])
        self.seen += [np.asarray(value).tolist() for value in self.model.optimizer.variables]


class Keeping(keras.callbacks.ModelCheckpoint):
    """Keeps the weights after every third batch; what its files hold is seen."""

    def __init__(self) -> None:
        super().__init__("none.weights.h5", save_weights_only=True, save_freq=3)
        self.seen: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.filepath = f"{tempfile.mkdtemp()}/{{epoch}}-{{batch}}.weights.h5"

    def on_train_end(self, logs: Any = None) -> None:
        for path in sorted(Path(self.filepath).parent.iterdir()):
            with h5py.File(path) as file:
                found: list[Any] = []
                file.visititems(lambda _, one, to=found: to.append(np.asarray(one)) if hasattr(one, "dtype") else None)
            self.seen.append((path.name, [value.tolist() for value in found]))
        shutil.rmtree(Path(self.filepath).parent)


def _callbacks_of_keras() -> list[Any]:
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.8 * rate),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=10.0),
        keras.callbacks.EarlyStopping("loss", patience=3, min_delta=10.0, restore_best_weights=True),
        Keeping(),
    ]


def _averaged() -> Any:
    return _dense(optimizer=keras.optimizers.SGD(0.05, momentum=0.5, use_ema=True, ema_momentum=0.8))


_TENSORFLOW = ("tensorflow",)  # steps of its own, and what other cases show on others
_NOT_TORCH = ("tensorflow", "jax")  # where Keras takes several steps in a call
CASES: dict[str, Case] = {
    "what a callback sets": Case(
        make=lambda: _dense(optimizer=keras.optimizers.Adam(0.02)), validates=True, callbacks=lambda: [Setting()]
    ),
    "callbacks of Keras": Case(make=_dense, epochs=6, validates=True, callbacks=_callbacks_of_keras),
    "moving averages in validation": Case(
        make=_averaged, validates=True, callbacks=lambda: [keras.callbacks.SwapEMAWeights(), Looking()]
    ),
    "not compiled": Case(make=lambda: _dense(jit_compile=False), validates=True, epochs=1),
    "a model that is asked in between": Case(
        make=lambda: _dense(metrics=["mae"]), validates=True, callbacks=lambda: [Asking()], undisturbed=True
    ),
    "a model that is taught in between": Case(
        make=lambda: _dense(optimizer=keras.optimizers.Adam(0.02)), callbacks=lambda: [Teaching()], epochs=4
    ),
    "logs of its own, looked at": Case(
        make=_tracking, validates=True, callbacks=lambda: [Looking()], backends=_TENSORFLOW
    ),
    "logs of its own, eagerly": Case(
        make=lambda: _tracking(eagerly=True),
        epochs=1,
        settings={"steps_per_epoch": 7},
        callbacks=lambda: [Looking()],
        backends=_TENSORFLOW,
    ),
    "a stop in mid-epoch": Case(make=_tracking, validates=True, callbacks=lambda: [Stopping()], backends=_TENSORFLOW),
    "a stop in mid-epoch of Keras' own steps": Case(
        make=lambda: _dense(metrics=["mae"]), validates=True, callbacks=lambda: [Stopping()]
    ),
    "a number a batch": Case(make=lambda: _dense(metrics=[mean_error, "mae"]), validates=True, backends=_TENSORFLOW),
    "two outputs": Case(make=_two_outputs, y=(TARGET, TARGET), validates=True, backends=_TENSORFLOW),
    "several steps a call": Case(
        make=lambda: _dense(steps_per_execution=3, metrics=["mae"]),
        validates=True,
        callbacks=lambda: [Looking()],
        backends=_NOT_TORCH,
    ),
    "several steps a call of some": Case(
        make=lambda: _dense(steps_per_execution=3),
        epochs=5,
        settings={"steps_per_epoch": 4, "validation_steps": 2},
        validates=True,
        callbacks=lambda: [Looking()],
        backends=_NOT_TORCH,
    ),
    "epochs of some steps": Case(
        make=_dense,
        epochs=4,
        settings={"steps_per_epoch": 4, "initial_epoch": 1},
        callbacks=lambda: [Looking()],
        backends=_TENSORFLOW,
    ),
    "epochs of too many steps": Case(
        make=_dense,
        settings={"steps_per_epoch": 9, "validation_steps": 7},
        validates=True,
        callbacks=lambda: [Looking()],
        backends=_TENSORFLOW,
    ),
}


CASES = {name: case for name, case in CASES.items() if keras.backend.backend() in case.backends}


def made(case: Case) -> Any:
    """The model of a case, the same each time."""
    keras.utils.set_random_seed(7)
    return case.make()


def of(case: Case, ys: list[np.ndarray]) -> Any:
    """Its targets."""
    return [ys[y - 1] for y in case.y] if isinstance(case.y, tuple) else ys[case.y - 1]


def alone(case: Case) -> tuple[Any, Any, list[Any]]:
    """What Keras makes of a case: weights, history, and what callbacks have seen."""
    model, callbacks = made(case), case.callbacks()
    (x, *ys), (validation_x, *validation_ys) = columns(ROWS, 1), columns(VALIDATION_ROWS, 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*ran out of data")
        history = model.fit(
            x,
            of(case, ys),
            batch_size=BATCH_SIZE,
            epochs=case.epochs,
            validation_data=(validation_x, of(case, validation_ys)) if case.validates else None,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
            **case.settings,
        )
    seen = [getattr(each, "seen", None) for each in callbacks]
    if case.undisturbed:
        return model.get_weights(), alone(replace(case, callbacks=list, undisturbed=False))[1], seen
    return model.get_weights(), history.history, seen


@functools.cache
def alone_by_name(name: str) -> tuple[Any, Any, list[Any]]:
    """What Keras makes of a case of the table."""
    return alone(CASES[name])


def all_cases(tasks: dict[str, FitTask], session: Any) -> dict[str, Any]:
    """A role that takes part in one after the other."""
    return {name: FitRole(task)(session) for name, task in tasks.items()}


def task_of(case: Case) -> FitTask:
    """As ``dt.fit`` sends it."""
    header, arrays = model_to_parts(made(case))
    layout = Columns(features=X, labels=case.y)
    return FitTask(
        header=header,
        arrays=arrays,
        columns=layout,
        validation_columns=layout if case.validates else None,
        epochs=case.epochs,
        batch_size=BATCH_SIZE,
        shuffle=False,
        validation_batch_size=BATCH_SIZE,
        callbacks=send_callbacks(case.callbacks()),
        **case.settings,
    )


# On other backends, where all cases take minutes, each night.
@(pytest.mark.slow if keras.backend.backend() == "tensorflow" else pytest.mark.nightly)
def test_two_workers_do_what_keras_does(client):
    uneven = (3, 40, 1, 55)
    result = dt.train(
        partial(all_cases, {name: task_of(case) for name, case in CASES.items()}),
        roles={"worker": 2},
        data=tuple(da.from_array(column, chunks=(uneven, *column.shape[1:])) for column in columns(ROWS, 1)),
        datasets={VALIDATION: columns(VALIDATION_ROWS, 2)},
        framework=keras_framework(),
    )
    outcomes = result.results["worker"][0]
    wrong = {}
    for name, case in CASES.items():
        weights, history, seen = alone_by_name(name)
        outcome = outcomes[name]
        *held_by_callbacks, _ = outcome.callbacks  # the last is what the script's variables hold
        found = [pickle.loads(held).get("seen") for held in held_by_callbacks]
        model = made(case)
        load_parts(model, outcome.header, outcome.arrays)
        told = (
            differing_weights(model, weights)
            or differing(outcome.history, history, "history")
            or differing(found, seen, "callbacks")
        )
        if told:
            wrong[name] = told
    assert wrong == {}


def differing_weights(model: Any, wanted: list[np.ndarray]) -> str:
    """As :func:`differing`; moving averages are means over workers, whose shares of the last batch are 2 rows and 1."""
    pairs = list(zip(model.weights, wanted, strict=True))
    exact = [(variable.numpy(), value) for variable, value in pairs if variable.trainable]
    told = differing([value for value, _ in exact], [value for _, value in exact], "weights")
    for variable, value in pairs:
        if not variable.trainable and not np.allclose(variable.numpy(), value, atol=0.1):
            told = told or f"{variable.path}: {variable.numpy()} for {value}"
    return told


def fitted(case: Case, client: Any, **settings: Any) -> tuple[Any, Any, list[Any]]:
    """As :func:`alone`, by ``dt.fit``."""
    model, callbacks = made(case), case.callbacks()
    (x, *ys), (validation_x, *validation_ys) = columns(ROWS, 1), columns(VALIDATION_ROWS, 2)
    settings = {"epochs": case.epochs, **case.settings, **settings}
    result = dt.fit(
        model,
        x,
        of(case, ys),
        batch_size=BATCH_SIZE,
        validation_data=(validation_x, of(case, validation_ys)) if case.validates else None,
        shuffle=False,
        callbacks=callbacks,
        client=client,
        **settings,
    )
    return model.get_weights(), result.history, [getattr(each, "seen", None) for each in callbacks]


@pytest.mark.filterwarnings("ignore:steps_per_epoch=4:UserWarning")
@pytest.mark.parametrize(
    "name",
    ["a model that is taught in between"]
    + ["several steps a call of some", "a model that is asked in between"] * (keras.backend.backend() == "tensorflow"),
)
def test_a_worker_of_a_parameter_server_does_what_keras_does(client, name):
    found, wanted = fitted(CASES[name], client, workers=1, ps=1), alone_by_name(name)
    assert differing(found[:2], wanted[:2], "ps") == ""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the same on others")
def test_what_goes_on_within_the_data_does_what_keras_does(client, tmp_path):
    """Epochs of 4 and of 3 steps; it goes on with the second of a turn."""
    case = Case(make=_dense, epochs=5, settings={"steps_per_epoch": 4}, callbacks=lambda: [Looking()])
    for epochs, resume in ((2, False), (3, True), (5, True)):
        with pytest.warns(
            UserWarning, match="steps_per_epoch=4, and the data has 7 batches: .* one epoch of 2 after 3"
        ):
            found = fitted(case, client, workers=2, epochs=epochs, checkpoint=tmp_path, resume=resume)
    assert differing(found[:2], alone(case)[:2], "resumed") == ""
    with pytest.raises(dt.RoleFailedError, match="batches in an epoch=4, and this run has 5"):
        fitted(case, client, workers=2, epochs=6, checkpoint=tmp_path, resume=True, steps_per_epoch=5)


def differing(found: Any, wanted: Any, where: str) -> str:
    """Where two structures of numbers differ; empty where they do not."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or set(found) != set(wanted):
            return f"{where}: {found} for {wanted}"
        return next(filter(None, (differing(found[name], wanted[name], f"{where}/{name}") for name in wanted)), "")
    if isinstance(wanted, list | tuple):
        if len(found) != len(wanted):
            return f"{where}: {len(found)} for {len(wanted)}: {found} for {wanted}"
        places = enumerate(zip(found, wanted, strict=True))
        return next(filter(None, (differing(one, other, f"{where}/{at}") for at, (one, other) in places)), "")
    if wanted is None or isinstance(wanted, str):
        return "" if found == wanted else f"{where}: {found!r} for {wanted!r}"
    if not np.allclose(found, wanted, rtol=TOLERANCE, atol=1e-6, equal_nan=True):
        return f"{where}: {found} for {wanted}"
    return ""
