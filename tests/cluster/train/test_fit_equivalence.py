"""Several workers train the model that one process trains: its weights and its history, for each kind of model."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt
from dask_train.data.columns import Columns
from dask_train.data.structure import filled
from dask_train.fitting.backends import BACKENDS
from dask_train.fitting.keras_models import keras_framework
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.jax_calls import exact_calls
from dask_train.keras_models.serialization import model_to_parts

pytestmark = [pytest.mark.slow, pytest.mark.backends]

_found = importlib.util.spec_from_file_location("odd_models", Path(__file__).with_name("odd_models.py"))
odd = importlib.util.module_from_spec(_found)  # is in no process' path, so its classes travel by value
_found.loader.exec_module(odd)

ROWS, VALIDATION_ROWS, BATCH_SIZE, EPOCHS = 1001, 101, 30, 3  # 34 steps an epoch, the last one of 11 rows
VALIDATION_BATCH_SIZE = 50  # the last one has a row: most workers have none
# Columns of the one data set that all cases use.
X, CLASS, IDS, WEIGHT, TARGETS, BINARY, STEPS = range(7)


def columns(num_rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """Rows that something can be learnt from."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_rows, 8))
    scores = x @ np.random.default_rng(0).normal(size=(8, 3))
    ids = random.integers(0, 20, size=(num_rows, 5))
    ids[:, 3:][random.random((num_rows, 2)) < 0.5] = 0  # masked
    return (
        x,
        scores.argmax(1),
        ids,
        random.random(num_rows) * 2,
        scores[:, :2],
        (scores[:, 0] > 0).astype(np.int64),
        (ids + ids.sum(1, keepdims=True)) % 3,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model, and what of the data it is trained on."""

    make: Callable[[], Any]
    columns: Columns
    floatx: str = "float64"
    epochs: int = EPOCHS
    batch_size: int = BATCH_SIZE
    steps_per_epoch: int | None = None
    class_weight: dict[int, float] | None = None
    validates: bool = False
    tolerance: float = 1e-9
    callbacks: Callable[[], list[Any]] = list
    backends: tuple[str, ...] = BACKENDS


def _classifier(optimizer: Any = "adam", loss: Any = None, inputs: int = 8, units: int = 3, **compiled: Any) -> Any:
    model = keras.Sequential([layers.Input((inputs,)), layers.Dense(16, activation="tanh"), layers.Dense(units)])
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **compiled)
    return model


def _sparse(**settings: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **settings)


def _regularised() -> Any:
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.05)), layers.Dense(3)]
    )
    model.compile("adam", _sparse(), metrics=["accuracy"])
    return model


def _embedding() -> Any:
    ids = layers.Input((5,), dtype="int64")
    model = keras.Model(ids, layers.Dense(3)(layers.Flatten()(layers.Embedding(20, 4)(ids))))
    model.compile("adam", _sparse())
    return model


def _synchronized() -> Any:
    """Two beside each other, one after them, and one of rows of which parts are masked."""
    x, ids = layers.Input((8,), name="x"), layers.Input((5,), dtype="int64", name="ids")
    norm = functools.partial(layers.BatchNormalization, synchronized=True)
    beside = layers.Add()([norm()(layers.Dense(6, use_bias=False)(x)) for _ in range(2)])
    words = layers.LSTM(3)(norm()(layers.Embedding(20, 4, mask_zero=True)(ids)))
    both = norm()(layers.Concatenate()([layers.Activation("tanh")(beside), words]))
    model = keras.Model({"x": x, "ids": ids}, layers.Dense(3)(both))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), _sparse(), metrics=["accuracy"])
    return model


def _two_and_two() -> Any:
    x, ids = layers.Input((8,), name="x"), layers.Input((5,), dtype="int64", name="ids")
    both = layers.Concatenate()([layers.Dense(8, activation="tanh")(x), layers.Flatten()(layers.Embedding(20, 2)(ids))])
    model = keras.Model(
        {"x": x, "ids": ids},
        {
            "value": layers.Dense(2, name="value")(both),
            "late": layers.Dense(1, activation="sigmoid", name="late")(both),
        },
    )
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        {"value": "mse", "late": "binary_crossentropy"},
        loss_weights={"value": 0.5, "late": 2.0},
        metrics={"value": ["mae"], "late": ["accuracy", keras.metrics.AUC(name="auc")]},
    )
    return model


def _own_step() -> Any:
    class OwnStep(keras.Model):
        """Trains by itself, and tells something that is no metric."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def build(self, shape: Any) -> None:
            self.dense.build(shape)
            self.built = True

        def train_step(self, data: Any) -> Any:
            x, y = data
            variables = self.trainable_variables
            (loss,), (gradients,) = odd.derived(lambda: [keras.ops.mean((self(x, training=True) - y) ** 2)], variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"squared": loss}

        def get_config(self) -> dict[str, Any]:
            return {}

    if keras.backend.backend() == "jax":
        return odd.OwnStepOnJax.made("adam")
    model = OwnStep()
    model.build((None, 8))
    model.compile("adam")
    return model


def _own_loss() -> Any:
    class OwnLoss(keras.Model):
        """A loss of its own, from its inputs too."""

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
            return keras.ops.mean(keras.ops.abs(y_pred - y)) + 0.1 * keras.ops.mean(keras.ops.square(x))

    x = layers.Input((8,))
    model = OwnLoss(x, layers.Dense(2)(x))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def _convolution() -> Any:
    x = layers.Input((8,))
    found = layers.Conv1D(4, 3, activation="relu")(layers.Reshape((8, 1))(x))
    model = keras.Model(x, layers.Dense(3)(layers.Flatten()(found)))
    model.compile(keras.optimizers.Adam(1e-3), _sparse(), metrics=["accuracy"])
    return model


def _mixed() -> Any:
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, activation="tanh", dtype="mixed_float16"), layers.Dense(3)]
    )
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)), _sparse())
    return model


def _scheduled() -> Any:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
    return _classifier(keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True))


_PLAIN = Columns(features=X, labels=CLASS)
_WEIGHTED = Columns(features=X, labels=CLASS, weights=WEIGHT)
_WORDS = Columns(features=IDS, labels=CLASS)
_TARGETS = Columns(features=X, labels=TARGETS)

_NOT_JAX = ("tensorflow", "torch")  # where steps of one's own are written in the same way
# What tells little more on other backends, where gradients of tables are dense.
_TOLD_BY_OTHERS = {"positions in a variable", "positions and adagrad", "positions and momentum", "positions and lion"}
_TOLD_BY_OTHERS |= {"momentum", "clipped", "embedding", "epochs of some steps", "positions and adam"}
_TOLD_BY_OTHERS |= {"both ways, accumulated", "positions, eagerly"}

CASES: dict[str, Case] = {
    "adam": Case(make=lambda: _classifier(metrics=["accuracy"]), columns=_PLAIN, validates=True),
    "momentum": Case(make=lambda: _classifier(keras.optimizers.SGD(0.1, momentum=0.9)), columns=_PLAIN),
    "regularised": Case(make=_regularised, columns=_PLAIN),
    "clipped": Case(make=lambda: _classifier(keras.optimizers.Adam(0.01, global_clipnorm=0.1)), columns=_PLAIN),
    "accumulated": Case(
        make=lambda: _classifier(keras.optimizers.Adam(0.01, gradient_accumulation_steps=4)), columns=_PLAIN
    ),
    "embedding": Case(make=_embedding, columns=Columns(features=IDS, labels=CLASS)),
    "synchronized": Case(
        make=_synchronized,
        columns=Columns(features={"x": X, "ids": IDS}, labels=CLASS),
        validates=True,
        epochs=1,
        tolerance=1e-8,
        backends=("tensorflow",),
    ),
    "mixed precision": Case(
        make=_mixed, columns=_PLAIN, floatx="float32", epochs=1, steps_per_epoch=10, tolerance=5e-3
    ),
    "two inputs and outputs": Case(
        make=_two_and_two,
        columns=Columns(features={"x": X, "ids": IDS}, labels={"value": TARGETS, "late": BINARY}),
        validates=True,
    ),
    "a step of its own": Case(make=_own_step, columns=Columns(features=X, labels=TARGETS)),
    "a loss of its own": Case(make=_own_loss, columns=Columns(features=X, labels=TARGETS)),
    "a schedule": Case(make=_scheduled, columns=_PLAIN),
    "epochs of some steps": Case(make=_classifier, columns=_PLAIN, steps_per_epoch=20),
    "epochs of too many steps": Case(make=_classifier, columns=_PLAIN, steps_per_epoch=50, epochs=2),
    "positions and adam": Case(make=lambda: odd.words(keras.optimizers.Adam(0.01)), columns=_WORDS),
    "positions in a variable": Case(
        make=lambda: odd.words(keras.optimizers.Adam(0.01), numbers=keras.ops.arange(5)), columns=_WORDS, epochs=1
    ),
    "positions and adagrad": Case(
        make=lambda: odd.words(keras.optimizers.Adagrad(0.1, clipnorm=0.1)), columns=_WORDS, epochs=1
    ),
    "positions and momentum": Case(
        make=lambda: odd.words(keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-3)), columns=_WORDS, epochs=1
    ),
    "positions and lion": Case(
        make=lambda: odd.words(keras.optimizers.Lion(1e-3, global_clipnorm=0.1)), columns=_WORDS, epochs=1
    ),
    "both ways": Case(
        make=lambda: odd.words(
            keras.optimizers.AdamW(0.01, global_clipnorm=0.1, use_ema=True, ema_overwrite_frequency=7), doubly=True
        ),
        columns=_WORDS,
    ),
    "both ways, accumulated": Case(
        make=lambda: odd.words(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), doubly=True), columns=_WORDS
    ),
    "positions, eagerly": Case(
        make=lambda: odd.words(keras.optimizers.Adam(0.01), eagerly=True), columns=_WORDS, epochs=1, steps_per_epoch=5
    ),
    "out of sight": Case(make=lambda: odd.OutOfSight.made(0.01), columns=_TARGETS, backends=_NOT_JAX),
    "what an optimizer remembers": Case(make=lambda: odd.regression(odd.Remembers(0.01)), columns=_TARGETS),
    "a variable that a callback sets": Case(
        make=lambda: odd.Weighted.made(keras.optimizers.SGD(0.05)),
        columns=_TARGETS,
        callbacks=lambda: [odd.Anneals()],
        backends=("tensorflow",),
    ),
    "losses by row, batch and weight": Case(make=odd.with_added_losses, columns=_TARGETS),
    "sums of its own": Case(
        make=lambda: odd.OwnSums.made(keras.optimizers.SGD(1e-3)), columns=_TARGETS, backends=_NOT_JAX
    ),
    "not reduced": Case(
        make=lambda: odd.regression(keras.optimizers.SGD(1e-3), keras.losses.MeanSquaredError(reduction=None)),
        columns=_TARGETS,
        backends=("tensorflow",),  # others derive no losses by row
    ),
    "float32": Case(make=_convolution, columns=_PLAIN, floatx="float32", epochs=1, steps_per_epoch=10, tolerance=1e-4),
}


CASES = {name: case for name, case in CASES.items() if keras.backend.backend() in case.backends}
if keras.backend.backend() != "tensorflow":
    CASES = {name: case for name, case in CASES.items() if name not in _TOLD_BY_OTHERS}


def let_float64_be() -> None:
    """Keras computes much of a model in float64 in float32 where it does not run on TensorFlow; here it must not."""
    from keras.src.backend.common.dtypes import BIT64_TO_BIT32_DTYPE  # not a copy of it, where this travels by value

    BIT64_TO_BIT32_DTYPE.update(float64="float64", int64="int64")
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)


def set_float_type(name: str) -> None:
    """Let layers and ``fit`` take this type, as a script does at its begin."""
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


def made(case: Case) -> Any:
    """The model of a case, the same each time."""
    set_float_type(case.floatx)
    keras.utils.set_random_seed(7)
    return case.make()


def packed(case: Case, rows: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """Inputs, targets, and weights where there are any."""
    columns = case.columns
    return tuple(filled(places, rows.__getitem__) for places in columns.places().values() if places is not None)


@contextmanager
def one_process(
    cases: Mapping[str, Case],
) -> Iterator[Callable[[str], tuple[dict[str, list[float]], list[np.ndarray]]]]:
    """Give what one process makes of each of these cases, by its name: history and weights."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    let_float64_be()
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)  # as its models are small, several only wait for each other
    yield functools.cache(lambda name: fitted(cases[name]))
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_enable_x64", False)
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    with one_process(CASES) as found:
        yield found


def fitted(case: Case) -> tuple[dict[str, list[float]], list[np.ndarray]]:
    """A case's history and weights as Keras has them."""
    train, validation = columns(ROWS, 1), columns(VALIDATION_ROWS, 2)
    model = made(case)
    x, y, sample_weight = [*packed(case, train), None][:3]
    with warnings.catch_warnings(), exact_calls():  # without, Keras drops losses on JAX
        warnings.filterwarnings("ignore", ".*ran out of data")  # that is the case
        history = model.fit(
            x,
            y,
            sample_weight=sample_weight,
            batch_size=case.batch_size,
            epochs=case.epochs,
            steps_per_epoch=case.steps_per_epoch,
            class_weight=case.class_weight,
            validation_data=packed(case, validation) if case.validates else None,
            validation_batch_size=VALIDATION_BATCH_SIZE,
            shuffle=False,
            callbacks=case.callbacks(),
            verbose=0,
        )
    return history.history, model.get_weights()


def all_cases(tasks: dict[str, FitTask], session: Any) -> dict[str, Any]:
    """A role that takes part in one after the other, each under the float type of its case."""
    let_float64_be()
    outcomes = {}
    for name, task in tasks.items():
        set_float_type(task.header["floatx"])
        outcomes[name] = FitRole(task)(session)
    return outcomes


# Fewer of them on TensorFlow alone: test_fit_backends.py and test_fit_as_keras.py have one and two on the others.
FEWER = [
    (1, ["adam", "two inputs and outputs"]),
    (2, ["adam", "mixed precision", "a step of its own", "float32"]),
]


@pytest.mark.parametrize(
    ("num_workers", "names"),
    [
        *(FEWER if keras.backend.backend() == "tensorflow" else []),
        (3, list(CASES)[::2]),
        pytest.param(3, list(CASES)[1::2], marks=pytest.mark.nightly),
    ],
)
def test_workers_train_the_model_of_one_process(client, alone, num_workers, names):
    first, *others = trained({name: CASES[name] for name in names}, num_workers)
    assert all(set(outcomes.values()) == {None} for outcomes in others)
    wrong = {name: told for name in names if (told := differing(CASES[name], first[name], *alone(name)))}
    assert wrong == {}


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="a step on JAX assigns nothing")
def test_workers_that_train_alone_are_told(client):
    alone = Case(make=lambda: odd.Alone.made("sgd"), columns=_TARGETS)
    with pytest.raises(dt.RoleFailedError) as error:
        trained({"alone": alone}, 2)
    told = str(error.value.__cause__)
    assert isinstance(error.value.__cause__, dt.DivergedError)
    assert "After step 1 worker 1 has other weights than worker 0: 'alone" in told
    assert "a train_step or a layer that assigns by itself" in told


def trained(cases: dict[str, Case], num_workers: int) -> list[dict[str, Any]]:
    """What each worker returns of each case."""
    tasks = {}
    for name, case in cases.items():
        header, arrays = model_to_parts(made(case))
        tasks[name] = FitTask(
            header=header,
            arrays=arrays,
            columns=case.columns,
            validation_columns=case.columns if case.validates else None,
            callbacks=send_callbacks(case.callbacks()),
            epochs=case.epochs,
            batch_size=case.batch_size,
            steps_per_epoch=case.steps_per_epoch,
            shuffle=False,
            validation_batch_size=VALIDATION_BATCH_SIZE,
            class_weight=case.class_weight,
        )
    uneven = (3, 400, 1, 97, 500)
    result = dt.train(
        functools.partial(all_cases, tasks),
        roles={"worker": num_workers},
        data=tuple(da.from_array(column, chunks=(uneven, *column.shape[1:])) for column in columns(ROWS, 1)),
        datasets={VALIDATION: columns(VALIDATION_ROWS, 2)},
        framework=keras_framework(),
    )
    found: list[dict[str, Any]] = result.results["worker"]
    return found


def differing(case: Case, outcome: Any, history: dict[str, list[float]], weights: list[np.ndarray]) -> str:
    """What is not as it is alone, within the case's tolerance of the whole weight vector; empty where all is."""
    found = outcome.arrays[: len(weights)]
    if [array.shape for array in found] != [array.shape for array in weights]:
        return f"shapes {[array.shape for array in found]}"
    found, wanted = (np.concatenate([array.ravel() for array in some]) for some in (found, weights))
    distance = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    if not distance <= case.tolerance:
        return f"weights differ by {distance:.2e}"
    if set(outcome.history) != set(history):
        return f"history of {sorted(outcome.history)}"
    for name, values in history.items():
        if not np.allclose(outcome.history[name], values, rtol=10 * case.tolerance, atol=0):
            return f"{name}: {outcome.history[name]} for {values}"
    return ""
