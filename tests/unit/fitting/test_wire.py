"""Calls that ask for less between hosts, and can't have it: refused before anything starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.fitting.wire import WireNotice
from dask_train.linear_model import LinearRegression

X, Y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)


def network(dtype: str = "float32") -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, dtype=dtype)])
    model.compile("sgd", "mse")
    return model


def fit_module(module: torch.nn.Module, wire: Any) -> None:
    dt.fit(module, X, Y, loss=torch.nn.MSELoss(), optimizer=torch.optim.SGD, workers=0, wire=wire)


@pytest.mark.parametrize("wire", ["float16", "", True, 16])
def test_other_dtypes_are_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match=r"wire is .*; it is 'bfloat16', or None"):
        dt.fit(network(), X, Y, workers=0, wire=wire)
    with pytest.raises(ValueError, match=r"wire is .*; it is 'bfloat16', or None"):
        fit_module(torch.nn.Linear(3, 1), wire)


def test_gradients_with_more_digits_than_float32_are_not_rounded() -> None:
    with pytest.raises(ValueError, match=r"wire='bfloat16' rounds .*kernel' is float64"):
        dt.fit(network("float64"), X, Y, workers=0, wire="bfloat16")
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1).double())
    with pytest.raises(ValueError, match=r"wire='bfloat16' rounds .*'1.weight' is float64"):
        fit_module(Cast(module), "bfloat16")


class Cast(torch.nn.Module):
    """Parts in several dtypes."""

    def __init__(self, parts: torch.nn.Sequential) -> None:
        super().__init__()
        self.add_module("0", parts[0])
        self.add_module("1", parts[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return floats of 32 bits."""
        first, second = self.children()
        found: torch.Tensor = second(first(x).double()).float()
        return found


def test_models_that_sum_no_gradients_take_no_wire() -> None:
    with pytest.raises(ValueError, match="with ps=1 each brings its own to parameter servers"):
        dt.fit(network(), X, Y, ps=1, workers=2, wire="bfloat16")
    with pytest.raises(TypeError, match="takes no wire= for a model of type LinearRegression"):
        dt.fit(LinearRegression(), X, Y[:, 0], wire="bfloat16")


def test_one_process_rounds_nothing_and_says_so() -> None:
    result = dt.fit(network(), X, Y, workers=0, wire="bfloat16", verbose=0)
    assert any("wire='bfloat16' has changed nothing" in notice for notice in result.notices)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workers": 1}, "sync_every=5 is for several workers, which share weights, and there is one"),
        ({"workers": 0}, "sync_every=5 is for several workers"),
        ({"recovery": "in_place"}, "recovery='in_place' is for workers that sum in every step, and sync_every=5"),
        ({"workers": (2, 4)}, r"workers=\(2, 4\) is for workers that sum in every step, and sync_every=5"),
        ({"sync_every": None, "outer_momentum": 0.5}, "outer_momentum=0.5 is of the optimizer that moves weights"),
        ({"sync_every": None, "outer_learning_rate": 1}, "outer_learning_rate=1 is of the optimizer that moves"),
        ({"outer_learning_rate": 0}, "outer_learning_rate is 0; it is a number above 0"),
        ({"outer_momentum": 1.0}, "outer_momentum is 1.0; it is a fraction"),
    ],
)
def test_workers_that_step_alone_are_several_and_are_not_replaced_in_place(settings: Any, says: str) -> None:
    given = {"workers": 2, "sync_every": 5, **settings}
    with pytest.raises(ValueError, match=says):
        dt.fit(torch.nn.Linear(3, 1), X, Y, loss=torch.nn.MSELoss(), optimizer=torch.optim.SGD, **given)


def test_keras_models_sum_in_each_step() -> None:
    with pytest.raises(TypeError, match="takes no sync_every= for a model of type Sequential"):
        dt.fit(network(), X, Y, workers=2, sync_every=5)


def told(wire: str | None, begins_on: int, ends_on: int, rank: int = 0) -> list[str]:
    """What a worker tells whose run has these numbers of hosts."""
    notices: list[str] = []
    session: Any = SimpleNamespace(notice=notices.append)
    group: Any = SimpleNamespace(rank=rank, most_hosts=begins_on)
    notice = WireNotice(wire, session, group)
    assert len(notices) == (begins_on > 1 and wire is not None and rank == 0)
    group.most_hosts = ends_on
    notice.training_ends()
    return notices


def test_that_nothing_was_rounded_is_known_in_the_end() -> None:
    (nothing,) = told("bfloat16", 1, 1)
    assert "wire='bfloat16' has changed nothing" in nothing
    (rounded,) = told("bfloat16", 1, 2)
    assert "travelled between the 2 hosts in bfloat16" in rounded
    assert told("bfloat16", 2, 2) == [rounded]
    assert told("bfloat16", 2, 3)[1:] == [rounded.replace("the 2 hosts", "the 3 hosts")]
    assert told(None, 1, 2) == told("bfloat16", 2, 3, rank=1) == []
