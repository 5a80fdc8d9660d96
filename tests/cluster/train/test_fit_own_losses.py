"""Losses that models compute by themselves are those of one process on several workers, or are refused."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers
from loading import loaded

import dask_train as dt
from dask_train.data.columns import Columns
from dask_train.fitting.backends import StepError
from dask_train.fitting.keras_models import keras_framework
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.serialization import model_to_parts

pytestmark = [pytest.mark.slow, pytest.mark.backends]
BACKEND = keras.backend.backend()
if BACKEND == "jax":
    pytest.skip("the client refuses them: tests/unit/fitting/test_loss_trial.py", allow_module_level=True)


own, equal = loaded(__file__, "own_losses"), loaded(__file__, "test_fit_equivalence")
_computed = functools.partial(own.of_model, own.Computes)
_stepped = functools.partial(own.of_model, own.Steps)
# Graphs show sums; what TensorFlow runs eagerly has none.
EXACT = {
    "mean": lambda: _computed(own.mean),
    "sum": lambda: _computed(own.summed),
    "mean and sum": lambda: _stepped(own.mean_and_sum),
    "added mean": lambda: own.of_layer(own.mean),
    "added sum": lambda: own.of_layer(own.summed),
    "eager mean": lambda: _stepped(own.mean, run_eagerly=True),
    "eager values by row": lambda: own.of_layer(own.rows_of),
}
REFUSED = {
    "root": lambda: _computed(own.root),
    "root in a step": lambda: _stepped(own.root),
    "added root": lambda: own.of_layer(own.root),
    "own mask": lambda: _computed(own.masked),
    "own mask, added": lambda: own.of_layer(own.masked),
    "coupled": lambda: _stepped(own.spread),
    "added coupling": lambda: own.of_layer(own.spread),
    "largest": lambda: _computed(own.largest),
    "of noise": lambda: _computed(own.noisy_root),
    "beside dropout": lambda: _computed(own.root, layers.Dropout(0.5)),
    "beside batch normalization": lambda: _stepped(own.root, layers.BatchNormalization()),
    **({"eager sum": lambda: _stepped(own.summed, run_eagerly=True)} if BACKEND == "tensorflow" else {}),
}
# As good a model as one worker's.
TAKEN = {
    "dropout": lambda: _computed(own.mean, layers.Dropout(0.5)),
    "dropout of states": lambda: _stepped(own.mean, layers.Reshape((2, 2)), layers.LSTM(3, dropout=0.5)),
    "batch normalization": lambda: _stepped(own.mean, layers.BatchNormalization()),
    "statistics of a batch": own.centered,
    "noise": lambda: _computed(own.noisy),
}
# Noise that is not Keras': as before, with a notice.
UNTRIED = {"unseen noise": lambda: _computed(own.unseen)}
ALL = {**EXACT, **REFUSED, **TAKEN, **UNTRIED}
CASES = {
    name: equal.Case(make=make, epochs=1, batch_size=50, columns=Columns(features=equal.X, labels=equal.TARGETS))
    for name, make in ALL.items()
}
CASES |= {name: dataclasses.replace(CASES[name], floatx="float32", tolerance=1e-4) for name in ("mean", "added sum")}
CASES["mixed precision"] = dataclasses.replace(CASES["mean"], make=own.in_half, tolerance=2e-2)


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    with equal.one_process(CASES) as found:
        yield found


def all_cases(tasks: dict[str, FitTask], session: Any) -> dict[str, Any]:
    """A role that takes part in one after the other; of those that are refused the text."""
    equal.let_float64_be()
    found: dict[str, Any] = {}
    for name, task in tasks.items():
        equal.set_float_type(task.header["floatx"])
        try:
            found[name] = FitRole(task)(session)
        except StepError as error:
            found[name] = str(error)
    return found


def trained(num_workers: int) -> Any:
    tasks = {}
    for name, case in CASES.items():
        header, arrays = model_to_parts(equal.made(case))
        tasks[name] = FitTask(
            header=header, arrays=arrays, columns=case.columns, epochs=1, batch_size=50, shuffle=False
        )
    columns = equal.columns(equal.ROWS, 1)
    return dt.train(
        functools.partial(all_cases, tasks),
        roles={"worker": num_workers},
        data=tuple(da.from_array(column, chunks=((400, 601), *column.shape[1:])) for column in columns),
        framework=keras_framework(),
    )


@pytest.mark.parametrize("num_workers", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_they_are_those_of_one_process_or_refused(client, alone, num_workers):
    result = trained(num_workers)
    first = result.results["worker"][0]
    refused = {name: told for name, told in first.items() if isinstance(told, str)}
    assert set(refused) == set(REFUSED)
    assert all("loss of its own" in told and "Pass the loss to compile" in told for told in refused.values())
    wrong = {}
    for name in [*EXACT, "mixed precision"]:
        weights = alone(name)[1]
        found = first[name].arrays[: len(weights)]
        distance = max(np.abs(one - other).max() for one, other in zip(found, weights, strict=True))
        if distance > CASES[name].tolerance:
            wrong[name] = distance
    assert wrong == {}
    (notice,) = [told for told in result.notices if "could not be tried" in told]
    assert "it draws random numbers" in notice
