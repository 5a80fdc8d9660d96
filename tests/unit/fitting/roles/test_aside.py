"""Callbacks have the model to themselves, and what they do with it is not counted in training."""

from __future__ import annotations

import pytest

from dask_train.fitting.roles.aside import Aside, is_aside, is_rehearsed, rehearsing


class Metrics:
    """Counts as a model's metrics do."""

    def __init__(self) -> None:
        self.count = 0

    def state(self) -> int:
        return self.count

    def restore(self, state: int) -> None:
        self.count = state


class Model:
    """Of Keras, as far as callbacks use it: its methods reset the metrics, and make functions when first called."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.train_function = self.test_function = "of training"

    def evaluate(self, rows: int) -> int:
        if rows < 0:
            raise ValueError(rows)
        self.metrics.count = rows
        self.test_function = self.test_function or "of a callback"
        return self.metrics.count

    fit = train_on_batch = test_on_batch = evaluate


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_what_callbacks_count_is_not_counted_in_training(method):
    metrics = Metrics()
    model = Model(metrics)
    aside = Aside(model, metrics)
    metrics.count = 7
    with aside():
        assert is_aside()
        assert getattr(model, method)(3) == 3
        assert metrics.count == 7
        with pytest.raises(ValueError, match="-1"):
            getattr(model, method)(-1)
        assert metrics.count == 7
    assert not is_aside()
    assert "evaluate" not in vars(model), "the model is as it was"
    getattr(model, method)(3)
    assert metrics.count == 3


def test_functions_of_callbacks_and_of_training_are_kept_apart():
    model = Model(Metrics())
    aside = Aside(model, model.metrics)
    with aside():
        assert (model.train_function, model.test_function) == (None, None)
        model.evaluate(1)
    assert model.test_function == "of training"
    with aside():
        assert model.test_function == "of a callback", "which is made once"


def test_a_callback_that_raises_leaves_the_model_to_training():
    model = Model(Metrics())
    aside = Aside(model, model.metrics)
    with pytest.raises(ZeroDivisionError), aside():
        raise ZeroDivisionError
    assert not is_aside()
    assert (model.train_function, vars(model).get("evaluate")) == ("of training", None)


def test_a_rehearsal_is_aside_and_trains_nothing():
    with rehearsing():
        assert is_aside()
        assert is_rehearsed()
    assert not is_aside()
    assert not is_rehearsed()
    with pytest.raises(ZeroDivisionError), rehearsing():
        raise ZeroDivisionError
    assert not is_aside()
    assert not is_rehearsed()
