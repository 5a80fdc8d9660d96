"""What ``fit`` and ``evaluate`` of a module make of their arguments; what they refuse is in ``test_checks.py``."""

from __future__ import annotations

import copy
from functools import partial

import dask.array as da
import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.fitting import start

_random = np.random.default_rng(0)
X, Y = _random.normal(size=(20, 4)), _random.integers(0, 3, 20)
LOSS = torch.nn.CrossEntropyLoss()
torch.manual_seed(0)
NET = torch.nn.Linear(4, 3).double()


class Compiled(torch.nn.Module):
    """As what ``torch.compile`` makes, which is slow to be imported."""

    def __init__(self, within):
        super().__init__()
        self._orig_mod = within


class Counting(torch.nn.Sequential):
    """Counts its calls, in evaluation too."""

    def __init__(self, *layers):
        super().__init__(*layers)
        self.num_calls = 0

    def forward(self, x):
        self.num_calls += 1
        return super().forward(x)


@pytest.fixture
def launched(monkeypatch):
    """What was to be launched on a cluster of three Dask workers: the task, and the keywords."""
    found = {}

    def launch(role, roles, inputs, run, **more):
        found.update(more, task=role.task, roles=roles, data=inputs.data, datasets=inputs.datasets)

    monkeypatch.setattr(start, "client_or_local", lambda *_: "a client")
    monkeypatch.setattr(start, "default_fit_workers", lambda *_: 3)
    monkeypatch.setattr(start, "launch", launch)
    return found


def fit(model=NET, **settings):
    return dt.fit(model, X, Y, loss=LOSS, **{"optimizer": partial(torch.optim.SGD, lr=0.5), **settings})


def test_where_nothing_is_said_batches_are_alike_and_each_host_has_its_workers(launched):
    state = torch.get_rng_state().numpy().copy()
    fit(validation_data=(X, Y))
    task = launched["task"]
    assert (task.batch_size, task.validation_batch_size, launched["roles"]) == (32, 32, {"worker": 3})
    np.testing.assert_array_equal(task.random, state)
    fit(validation_split=0.25, batch_size=8)
    assert (launched["task"].batch_size, launched["task"].validation_batch_size) == (8, 8)
    lengths = [source.num_rows for source in (launched["data"]["worker"], *launched["datasets"].values())]
    assert lengths == [15, 5]
    fit(validation_batch_size=5, workers=2)
    assert (launched["task"].validation_batch_size, launched["datasets"]) == (5, {})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"validation_data": (X[:, :3], Y)}, "The validation data"),
        ({"epochs": 0}, "epochs is 0"),
        ({"shuffle": "batch"}, "shuffle is 'batch'"),
    ],
)
def test_what_needs_no_cluster_to_be_refused_starts_none(launched, settings, told, monkeypatch):
    monkeypatch.setattr(start, "client_or_local", lambda *_: pytest.fail("a cluster of this machine is started"))
    with pytest.raises(ValueError, match=told):
        fit(**settings)
    assert launched == {}


def test_weights_of_rows_are_those_of_their_own_data_alone(launched):
    fit(sample_weight=np.ones(20), validation_data=(X, Y))
    layouts = launched["task"].columns, launched["task"].validation_columns
    assert [layout.weights is None for layout in layouts] == [False, True]
    fit(validation_data=(X, Y, np.ones(20)))
    layouts = launched["task"].columns, launched["task"].validation_columns
    assert [layout.weights is None for layout in layouts] == [True, False]


def test_an_evaluation_goes_through_all_rows_in_batches_of_its_own(launched):
    dt.evaluate(NET, da.from_array(X, chunks=6), da.from_array(Y, chunks=6), loss=LOSS, workers=2, batch_size=7)
    task = launched["task"]
    assert (task.validation_batch_size, launched["roles"], task.validation_columns) == (7, {"worker": 2}, task.columns)
    assert launched["display"].keywords == {"rows": 20, "batch_size": 7}
    for name, value, least in (("workers", -1, 0), ("batch_size", 0, 1)):
        with pytest.raises(ValueError, match=f"{name} is {value}; it is a whole number of at least {least}"):
            dt.evaluate(NET, X, Y, loss=LOSS, **{name: value})


def test_an_evaluation_in_this_process_leaves_the_module_and_random_numbers_as_they_are():
    module = Counting(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).double()
    before, random_before = copy.deepcopy(module), torch.get_rng_state()
    expected = LOSS(copy.deepcopy(module).eval()(torch.from_numpy(X)), torch.from_numpy(Y)).item()
    scores = dt.evaluate(module, X, Y, loss=LOSS, metrics=[torch.nn.functional.cross_entropy], workers=0, batch_size=7)
    assert scores == {"loss": pytest.approx(expected), "cross_entropy": pytest.approx(expected)}
    assert (module.training, module.num_calls) == (True, 0)
    assert torch.equal(torch.get_rng_state(), random_before)
    for value, value_before in zip(module.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(value, value_before)


def test_a_compiled_module_is_trained_within_and_validated_on_the_last_rows():
    plain, within = copy.deepcopy(NET), copy.deepcopy(NET)
    compiled = Compiled(within)
    settings = {"workers": 0, "verbose": 0, "batch_size": 4, "epochs": 2}
    found = fit(compiled, validation_split=0.25, **settings)
    assert found.model is compiled
    assert not torch.equal(within.weight, NET.weight)
    split = {"loss": LOSS, "optimizer": partial(torch.optim.SGD, lr=0.5), **settings}
    wanted = dt.fit(plain, X[:15], Y[:15], validation_data=(X[15:], Y[15:]), **split)
    assert found.history == wanted.history
    assert torch.equal(within.weight, plain.weight)
