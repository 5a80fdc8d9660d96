"""Steps that are tried before the first one: what they change is set back, and when they are needed."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from dask_train.fitting.roles import aside
from dask_train.fitting.roles.rehearsal import learn_losses, rehearsed


class Metrics:
    """Counts steps."""

    def __init__(self) -> None:
        self.count = 0

    def state(self) -> int:
        return self.count

    def restore(self, kept: int) -> None:
        self.count = kept


class OwnStep(keras.Sequential):
    def compute_loss(self, *args: Any, **more: Any) -> Any:
        return super().compute_loss(*args, **more)


class OwnLayer(keras.layers.Dense):
    """Keras' in all but its place."""


def own_loss(y: Any, found: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - found))


class OwnLoss(keras.losses.Loss):
    def call(self, y: Any, found: Any) -> Any:
        return own_loss(y, found)


class OwnRegularizer(keras.regularizers.Regularizer):
    def __call__(self, x: Any) -> Any:
        return keras.ops.sum(x) * 0.0


def model(layer: Any = None, loss: Any = "mse", kind: Any = keras.Sequential) -> Any:
    made = kind([keras.Input((2,)), layer or keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    made.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss=loss)
    made.optimizer.build(made.trainable_variables)
    return made


def values(of: Any) -> list[np.ndarray]:
    return [np.array(variable) for variable in (*of.variables, *of.optimizer.variables)]


def changes(of: Any) -> None:
    for variable in (*of.variables, *of.optimizer.variables):
        variable.assign(keras.ops.ones_like(variable) * 3)


def test_what_ones_own_parts_count_is_counted_of_steps_that_are_taken():
    tried = model(layer=OwnLayer(1), loss=OwnLoss(), kind=OwnStep)
    parts = [tried, tried.layers[0], tried.loss]
    for part in parts:
        part.calls, part.built_by = 2, "a user"
    with rehearsed(tried, Metrics()) as set_back:
        for times in range(2):
            assert [part.calls for part in parts] == [2, 2, 2], times
            for part in parts:
                part.calls += 1
            set_back()
    assert [(part.calls, part.built_by) for part in parts] == [(2, "a user")] * 3


@pytest.mark.parametrize("fails", [False, True])
def test_all_is_as_it_was_before(fails):
    tried, metrics = model(), Metrics()
    before = values(tried)

    def rehearse() -> None:
        with rehearsed(tried, metrics) as set_back:
            assert aside.is_rehearsed()
            changes(tried)
            metrics.count += 1
            set_back()
            np.testing.assert_equal(values(tried), before)
            assert metrics.count == 1, "they go on counting"
            changes(tried)
            if fails:
                raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            rehearse()
    else:
        rehearse()
    np.testing.assert_equal(values(tried), before)
    assert metrics.count == 0
    assert not aside.is_rehearsed()
    assert not aside._place.aside


class Backend:
    """Tries a step with the rows once and twice."""

    graphs_tell_more = refuses_losses = False

    def __init__(self) -> None:
        self.learned: list[Any] = []

    def learn(self, tried: Any, noted: Any, of: Any, gathers: Any) -> None:
        assert gathers is aside.tried_gathers()
        self.learned.append(of)
        tried(1)
        tried(2)


def learned(of: Any, backend: Backend) -> list[int]:
    """How many rows the steps had that were tried."""
    rows: list[int] = []

    def run(batch: Any) -> None:
        assert batch["x"].shape[0] == batch["y"].shape[0]
        rows.append(batch["x"].shape[0])
        changes(of)

    before = values(of)
    learn_losses(of, Metrics(), backend, run, {"x": np.ones((3, 2)), "y": np.ones((3, 1))})  # type: ignore[arg-type]
    np.testing.assert_equal(values(of), before)
    return rows


@pytest.mark.parametrize(
    "own",
    [
        {"kind": OwnStep},
        {"layer": OwnLayer(1)},
        {"layer": keras.layers.Dense(1, kernel_regularizer=OwnRegularizer())},
        {"layer": keras.layers.Dense(1, activity_regularizer=OwnRegularizer())},
        {"layer": keras.layers.Dense(1, activity_regularizer=keras.regularizers.OrthogonalRegularizer())},
    ],
    ids=["step", "layer", "regularizer", "activity regularizer", "rows compared"],
)
def test_losses_that_may_be_the_users_own_are_tried_with_rows_twice(own):
    backend, of = Backend(), model(**own)
    assert learned(of, backend) == [3, 6]
    assert backend.learned == [of]


@pytest.mark.parametrize(
    "kerass",
    [
        {},
        {"loss": keras.losses.MeanSquaredError()},
        {"loss": own_loss},
        {"loss": OwnLoss()},
        {"layer": keras.layers.Dense(1, kernel_regularizer="l2", activity_regularizer=keras.regularizers.L1())},
        {"layer": keras.layers.Dense(1, kernel_regularizer=keras.regularizers.OrthogonalRegularizer())},
        {"layer": keras.layers.ActivityRegularization(l1=0.1)},
    ],
)
def test_those_of_keras_are_known_and_compiled_ones_are_given_all_rows(kerass):
    assert learned(model(**kerass), Backend()) == []


def test_an_activity_regularizer_that_keras_adds_up_over_rows_is_tried(penalties_added_up):
    assert learned(model(layer=keras.layers.Dense(1, activity_regularizer="l1")), Backend()) == [3, 6]
    assert learned(model(layer=keras.layers.Dense(1, kernel_regularizer="l1")), Backend()) == []


def test_where_graphs_tell_more_nothing_is_tried():
    backend = Backend()
    backend.graphs_tell_more = True
    assert learned(model(loss=own_loss), backend) == []
