"""Which role of a run is the slowest, where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from dask_train.report.rates import SlowestRole


def status(*batches: int, phases: tuple[str, ...] = ("running",) * 3) -> dict[str, Any]:
    workers = [
        {"role": "worker", "rank": rank, "phase": phase, "num_batches": count}
        for rank, (count, phase) in enumerate(zip(batches, phases, strict=False))
    ]
    scorer = {"role": "scorer", "rank": 0, "phase": "running", "num_batches": 0}
    return {"roles": [*workers, scorer], "training": ("worker",)}


def slowest(*told: tuple[float, dict[str, Any]]) -> str | None:
    found = SlowestRole()
    for now, each in told:
        found.update(now, each)
    field = found.field()
    return None if field is None else field.text


def test_the_role_with_the_fewest_batches_of_the_last_seconds():
    assert slowest((0.0, status(0, 0, 0)), (4.0, status(40, 10, 39))) == "slowest worker 1, 2.5 batches/s"
    # What was slow before these seconds does not count.
    assert slowest((0.0, status(0, 0, 0)), (6.0, status(90, 10, 90)), (8.0, status(110, 50, 110))) == (
        "slowest worker 0, 10 batches/s"
    )


@pytest.mark.parametrize(
    "told",
    [
        [],
        [(0.0, status(0, 0, 0)), (0.5, status(20, 5, 20))],
        [(0.0, status(0, 0, 0)), (2.0, status(20, 17, 20))],
        [(0.0, status(0, 0, 0)), (2.0, status(9, 1, 9))],
        [(0.0, status(0, 0, 0)), (2.0, status(20))],
        [(0.0, status(0, 50, 0)), (2.0, status(20, 5, 20))],
        [(0.0, status(0, 0, 0)), (4.0, status(40, 10, 40, phases=("running", "returned", "running")))],
        [(0.0, status(900, 900, 900)), (4.0, status(1300, 1100, 1300))],
    ],
    ids=["nothing told", "too soon", "about as fast", "too few", "one role", "started again", "returned", "heard late"],
)
def test_roles_of_which_none_is_known_to_be_slow(told):
    assert slowest(*told) is None
