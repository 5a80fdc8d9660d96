"""What logs of a step on torch are made of, and computing them anew."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "torch":
    pytest.skip("in a process of its own: KERAS_BACKEND=torch", allow_module_level=True)

import keras
import torch
from keras import ops

from dask_train.fitting.backends.base import flat
from dask_train.fitting.backends.torch_logs import derived_logs, followed_results, unfollowed

pytestmark = pytest.mark.backends


def test_what_comes_of_metrics_is_computed_anew_and_nothing_else_is():
    one, other = keras.metrics.Mean(name="one"), keras.metrics.Precision(name="other")
    both = keras.metrics.F1Score(average="macro", name="both")
    one.update_state([1.0, 2.0])
    other.update_state([0, 1], [1.0, 1.0])
    both.update_state([[0.0, 1.0]], [[0.2, 0.8]])
    loss = torch.tensor(3.0, requires_grad=True)
    with followed_results():
        logs = {
            "one": one.result(),
            "mixed": 2 * one.result() * other.result() / (one.result() + other.result()),
            "rounded": ops.round(ops.sqrt(one.result())),
            "f1": both.result(),
            "loss": loss,
            "of both": loss.detach() * one.result(),
            "number": 3.0,
            "compile_metrics": {"inner": 2 * one.result()},  # as of ``{metric.name: metric.result()}``
        }
    derived = derived_logs(logs)
    assert derived.names == ("one", "mixed", "rounded", "f1", "inner")
    assert derived.raw == {"loss", "of both"}
    logs = flat(logs)
    assert {type(log) for log in unfollowed(logs).values()} == {torch.Tensor, float}
    assert [float(log) for log in derived.again()] == [float(logs[name]) for name in derived.names]
    one.update_state([9.0])
    again = dict(zip(derived.names, map(float, derived.again()), strict=True))
    assert (again["one"], again["mixed"], again["rounded"]) == pytest.approx((4.0, 2 * 4 * 0.5 / 4.5, 2.0))
    assert type(one.result()) is torch.Tensor
