"""What steps compute of ``dt.keras.global_batch`` is what one process computes, on each backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import keras
import pytest
from loading import loaded

import dask_train as dt
from dask_train.data.columns import Columns

pytestmark = [pytest.mark.slow, pytest.mark.backends]


steps, equal = loaded(__file__, "contrastive_steps"), loaded(__file__, "test_fit_equivalence")

# The last batch of an epoch, and of a validation, has one row: two of three workers have none.
_case = functools.partial(equal.Case, epochs=2, batch_size=50, columns=Columns(features=equal.X, labels=equal.CLASS))
CASES = {
    "a mean": _case(make=lambda: steps.Computes.made("of all"), validates=True),
    "a sum": _case(make=lambda: steps.Computes.made("a sum")),
    "own rows against all": _case(make=lambda: steps.Computes.made("own rows against all"), validates=True),
    "SimCLR": _case(make=lambda: steps.TwoTowers.made("simclr")),
    "CLIP": _case(make=lambda: steps.TwoTowers.made("clip")),
    "a layer": _case(make=lambda: steps.with_layer(steps.Contrasts()), validates=True),
    "statistics": _case(make=lambda: steps.with_layer(steps.Centers()), validates=True),
    "loss scaling": _case(
        make=lambda: steps.Computes.made("of all", keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)))
    ),
}
CASES = {name: case for name, case in CASES.items() if keras.backend.backend() in case.backends}


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    with equal.one_process(CASES) as found:
        yield found


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_train_the_model_of_one_process(client, alone, num_workers):
    names = list(CASES) if num_workers > 1 else ["a mean"]
    first, *others = equal.trained({name: CASES[name] for name in names}, num_workers)
    assert all(set(outcomes.values()) == {None} for outcomes in others)
    wrong = {name: told for name in names if (told := equal.differing(CASES[name], first[name], *alone(name)))}
    assert wrong == {}


SUMMED = _case(make=lambda: steps.Computes.made("own rows summed", keras.optimizers.SGD(0.001)))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="there it is exact")
def test_sums_over_own_rows_beside_those_of_all_are_refused(client):
    told = {"tensorflow": "Gather all that it takes", "jax": "gather all rows that it compares"}
    with pytest.raises(dt.RoleFailedError, match=told[keras.backend.backend()]):
        equal.trained({"sums": SUMMED}, 2)
