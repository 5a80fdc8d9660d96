"""Threads use models one after the other that have a part in common, and others side by side."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.predicting.server.in_use import current, in_use, parts_of

X = np.arange(12, dtype="f4").reshape(6, 2)
SHARED = torch.nn.Linear(2, 2)


def in_turn(*modules: Any) -> torch.nn.Module:
    return torch.nn.Sequential(*modules)


class Asking(torch.nn.Module):
    """Predicts with another module within its own forward, which it may hold as a part."""

    def __init__(self, inner: torch.nn.Module, *, holds: bool) -> None:
        super().__init__()
        self.inner = inner if holds else None
        self.others = [inner]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = da.from_array(x.numpy(), chunks=(1, 2))
        return 2 * torch.from_numpy(dt.predict(self.others[0], rows).compute(scheduler="threads"))


def test_different_models_are_used_side_by_side(in_threads):
    meet = threading.Barrier(2)

    def use(model: Any) -> None:
        with in_use(model):
            meet.wait(30)

    in_threads(lambda: use(in_turn(torch.nn.ReLU())), lambda: use(in_turn(torch.nn.ReLU())))


def check_waits(model: Any, made_in: Any = None) -> None:
    """Check that another thread uses a model only after this one, which uses a part of it."""
    entered = threading.Event()

    def use() -> None:
        with in_use(model, made_in):
            entered.set()

    thread = threading.Thread(target=use, daemon=True)
    with in_use(in_turn(SHARED)):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(30)
    assert entered.is_set()


@pytest.mark.parametrize("other", [SHARED, in_turn(torch.nn.ReLU(), in_turn(SHARED)), in_turn(SHARED)])
def test_models_with_a_part_in_common_are_used_one_after_the_other(other):
    check_waits(other)


def test_no_threads_wait_for_each_other(in_threads):
    one, two, three = (torch.nn.ReLU() for _ in range(3))

    def use(model: Any) -> None:
        for _ in range(200):
            with in_use(model):
                pass

    in_threads(*[lambda model=model: use(model) for model in map(in_turn, (one, two, three), (two, three, one))])


def test_a_thread_may_use_a_model_again_and_is_free_after_an_error():
    with in_use(SHARED), in_use(in_turn(SHARED)):
        inner = current()
        assert inner.within is not None
        with pytest.raises(KeyError), in_use(SHARED):
            raise KeyError
        assert current() is inner
    assert current() is None


def test_what_was_made_in_a_use_that_is_over_waits_as_others():
    with in_use(SHARED):
        made_in = current()
    check_waits(SHARED, made_in)


@pytest.mark.parametrize("holds", [True, False])
def test_a_module_may_predict_within_its_own_call(in_threads, holds):
    inner = torch.nn.Linear(2, 2)
    expected = inner(inner(torch.from_numpy(X))).detach().numpy()
    model = Asking(in_turn(inner, Asking(inner, holds=holds)), holds=holds)
    lazy = dt.predict(model, da.from_array(X, chunks=(2, 2)))
    (found,) = in_threads(lambda: lazy.compute(scheduler="threads"))
    np.testing.assert_allclose(found, 4 * expected, rtol=1e-4, atol=1e-4)
    assert all(part.training for part in model.modules())


def test_modes_of_shared_modules_are_put_back(in_threads):
    shared = torch.nn.BatchNorm1d(2)
    lazy = [dt.predict(in_turn(shared, torch.nn.Dropout()), da.from_array(X, chunks=(1, 2))) for _ in range(3)]
    (found,) = in_threads(lambda: dask.compute(*lazy, scheduler="threads"))
    for each in found:
        np.testing.assert_allclose(each, X, rtol=1e-4)
    assert shared.training


def test_parts_of_a_keras_model_are_its_layers_and_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
        import keras
    dense = keras.layers.Dense(2)
    inner = keras.Sequential([keras.Input((2,)), dense])
    model = keras.Sequential([keras.Input((2,)), inner])
    parts = parts_of(model)
    assert {id(model), id(inner), id(dense)} <= set(parts)
    assert all(parts[number] is part for number, part in ((id(dense), dense), (id(model), model)))
