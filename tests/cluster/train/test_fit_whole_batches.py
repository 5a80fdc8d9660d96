"""Compiled losses and metrics that look at several rows together are those of one process, on each backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import keras
import pytest
from loading import loaded

from dask_train.data.columns import Columns

pytestmark = [pytest.mark.slow, pytest.mark.backends]


whole, equal = loaded(__file__, "whole_batches"), loaded(__file__, "test_fit_equivalence")
Case, alone_settings = equal.Case, equal.alone

_TARGETS = Columns(features=equal.X, labels=equal.TARGETS)
_CLASSES = Columns(features=equal.X, labels=equal.CLASS)
_WEIGHTED = Columns(features=equal.X, labels=equal.CLASS, weights=equal.WEIGHT)
# The last batch of an epoch, and of a validation, has one row: two of three workers have none.
_settings: dict[str, Any] = {"epochs": 2, "batch_size": 50, "validates": True}
_case = functools.partial(Case, **_settings)

CASES = {
    "correlation": _case(make=lambda: whole.network(2, whole.correlation), columns=_TARGETS),
    "pairs": _case(make=lambda: whole.network(2, whole.ranking), columns=_TARGETS),
    "largest error": _case(make=lambda: whole.network(2, whole.largest), columns=_TARGETS),
    "from the middle": _case(make=lambda: whole.network(2, whole.from_the_middle), columns=_TARGETS),
    "a sum": _case(make=lambda: whole.network(2, whole.total), columns=_TARGETS),
    "a root": _case(make=lambda: whole.network(2, whole.root), columns=_TARGETS),
    "supervised contrastive": _case(make=lambda: whole.network(4, whole.supervised_contrastive), columns=_CLASSES),
    "a call of its own": _case(make=lambda: whole.network(2, whole.Everything()), columns=_TARGETS),
    "dice": _case(make=lambda: whole.network(2, keras.losses.Dice()), columns=_TARGETS, tolerance=1e-7),
    "sample weights": _case(
        make=lambda: whole.network(3, whole.SharesOfClasses(reduction="mean_with_sample_weight")), columns=_WEIGHTED
    ),
    "class weights": _case(
        make=lambda: whole.network(3, whole.SharesOfClasses()), columns=_CLASSES, class_weight={0: 3.0, 2: 0.5}
    ),
    "masks": _case(make=whole.of_steps, columns=Columns(features=equal.IDS, labels=equal.STEPS)),
    "metrics": _case(
        make=lambda: whole.network(2, "mse", metrics=[whole.Largest(), whole.ordered_pairs, "mae"]), columns=_TARGETS
    ),
    "two outputs": _case(
        make=whole.of_two,
        columns=Columns(features=equal.X, labels={"value": equal.TARGETS, "late": equal.BINARY}),
        tolerance=1e-8,
    ),
    "loss scaling": _case(
        make=lambda: whole.network(
            2, whole.correlation, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)), metrics=["mae"]
        ),
        columns=_TARGETS,
    ),
    # Sums of 11 or 8 bits are other ones in another order.
    **{
        f"{policy}, {name}": _case(
            make=functools.partial(whole.in_half_precision, policy, loss), columns=_TARGETS, tolerance=tolerance
        )
        for policy, tolerance in [("mixed_float16", 1e-3), ("mixed_bfloat16", 8e-3)]
        for name, loss in [("correlation", whole.correlation), ("mse", "mse")]
    },
}


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    with equal.one_process(CASES) as found:
        yield found


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_train_the_model_of_one_process(client, alone, num_workers):
    names = list(CASES) if num_workers > 1 else ["correlation", "metrics"]
    first, *others = equal.trained({name: CASES[name] for name in names}, num_workers)
    assert all(set(outcomes.values()) == {None} for outcomes in others)
    wrong = {name: told for name in names if (told := equal.differing(CASES[name], first[name], *alone(name)))}
    assert wrong == {}
