"""A user's own model after it was trained in the user's process."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.errors import CheckpointError
from dask_train.fitting.roles import in_process
from dask_train.fitting.roles.in_process import left_as_keras_would, not_autologged

AUTOLOGGING = "mlflow.utils.autologging_utils"


class Random:
    """A generator of torch's, as a variable."""

    def __init__(self) -> None:
        self.value = 1

    def assign(self, value: int) -> None:
        self.value = value


@pytest.fixture
def worker(monkeypatch) -> Any:
    """One that has set its own functions on a model; ``generator`` is torch's."""
    it = SimpleNamespace(generator=Random(), finished=0, fails=None)
    monkeypatch.setattr(in_process, "torch_random", lambda: [it.generator])
    monkeypatch.setattr(in_process, "value_of", lambda one: one.value)
    it.model = SimpleNamespace(train_function="ours", test_function="ours", predict_function="its own", weights=[1])

    def finish() -> None:
        it.finished += 1
        if it.fails is not None:
            raise it.fails

    it.keeper = SimpleNamespace(finish=finish)
    return it


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt(), ValueError("of the user's")])
def test_it_is_left_as_it_was_but_for_what_it_has_learned(worker, ends):
    def train() -> None:
        with left_as_keras_would(worker):
            worker.model._should_eval = "ours"
            worker.model.weights = [2]
            worker.generator.value = 5
            if ends is not None:
                raise ends

    if ends is None:
        train()
    else:
        with pytest.raises(type(ends)):
            train()
    model = worker.model
    assert (model.train_function, model.test_function, model.predict_function) == (None, None, "its own")
    assert "_should_eval" not in vars(model)
    assert model.weights == [2]
    assert worker.generator.value == 1, "random numbers go on where they were"
    assert worker.finished == 1, "a checkpoint that is being written is waited for"


def test_a_checkpoint_that_can_not_be_written_hides_no_other_error(worker):
    worker.fails = CheckpointError("The disk is full.")
    with pytest.raises(ValueError, match="of the user's"), left_as_keras_would(worker):
        raise ValueError("of the user's")
    with left_as_keras_would(worker):
        pass  # the run has seen this one
    assert worker.model.train_function is None


def test_mlflow_does_not_look_on(monkeypatch):
    monkeypatch.delitem(sys.modules, AUTOLOGGING, raising=False)
    with not_autologged():
        pass
    told = []

    @contextmanager
    def disable_autologging():
        told.append("off")
        yield
        told.append("on")

    monkeypatch.setitem(sys.modules, AUTOLOGGING, SimpleNamespace(disable_autologging=disable_autologging))
    with not_autologged():
        told.append("fit")
    assert told == ["off", "fit", "on"]
