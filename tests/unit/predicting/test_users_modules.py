"""The user's own torch module, used without a client: predictions of several at a time, and what they leave of it."""

from __future__ import annotations

import threading
from typing import Any

import dask.array as da
import numpy as np
import torch

import dask_train as dt

X = np.arange(12.0, dtype="f4").reshape(4, 3)


class Module(torch.nn.Module):
    """Tells when it is called, and behaves otherwise while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.called: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        if self.called is not None:
            self.called()
        return self.norm(x)


def test_two_predictions_of_a_module_at_a_time_do_not_train_it(in_threads: Any) -> None:
    module = Module()
    around = torch.nn.Sequential(module)  # another module, with the same layers
    first, second = (dt.predict(each, da.from_array(X)) for each in (module, around))
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(X)).numpy()
    module.train()
    second_began, first_ended, calls = threading.Event(), threading.Event(), iter((1, 2))

    def called() -> None:
        """Let the second call begin while the first runs, and end after it, where nothing keeps them apart."""
        if next(calls) == 1:
            second_began.wait(0.2)
        else:
            second_began.set()
            first_ended.wait(0.2)

    def compute(lazy: Any) -> Any:
        made = lazy.compute(scheduler="sync")
        first_ended.set()
        return made

    module.called = called
    for made in in_threads(lambda: compute(first), lambda: compute(second)):
        np.testing.assert_array_equal(made, wanted)
    assert module.norm.num_batches_tracked == 0
    assert module.norm.training


class Cached(torch.nn.Module):
    """Keeps what it has made once."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        self.scale: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        if self.scale is None:
            self.scale = torch.ones(1) * 2
        return self.linear(x) * self.scale


def test_a_module_that_keeps_what_it_made_can_be_trained_afterwards() -> None:
    module = Cached()
    dt.predict(module, da.from_array(X)).compute(scheduler="sync")
    module(torch.from_numpy(X)).sum().backward()
    assert module.linear.weight.grad is not None


def test_a_module_that_writes_to_its_input_leaves_the_users_rows_as_they_were() -> None:
    rows = X - 5
    lazy = da.from_array(rows).persist(scheduler="sync")
    (block,) = dict(lazy.__dask_graph__()).values()
    for writeable in (True, False):
        block.flags.writeable = writeable
        found = dt.predict(torch.nn.ReLU(inplace=True), lazy).compute(scheduler="sync")
        np.testing.assert_array_equal(found, np.maximum(rows, 0))
        np.testing.assert_array_equal(block, rows)
