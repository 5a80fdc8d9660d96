"""A fit whose number of workers follows the Dask workers: what is asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_train.cluster.arrivals import followed_workers
from dask_train.fitting.checks import check_share
from dask_train.run.bounds import WorkerBounds
from dask_train.run.recovery import check_recovery
from dask_train.training.settings import DEFAULT, RunSettings


def with_bounds(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a fit; if ``workers`` is a pair, with its lower number, and the pair as ``follows``.

    Such a run replaces lost workers in place, also where ``recovery`` was left out.

    Raises
    ------
    ValueError
        The two numbers are no valid bounds, or ``recovery`` does not go with them.
    """
    workers = arguments.get("workers")
    if not isinstance(workers, tuple | list):
        return dict(arguments)
    bounds, recovery = WorkerBounds.of(workers), arguments.get("recovery", DEFAULT)
    policy = check_recovery("in_place" if recovery == DEFAULT else recovery)
    if policy is None or policy.scope != "in_place":
        raise ValueError(
            f"workers={tuple(bounds)} needs recovery='in_place', and recovery={recovery!r} was passed: workers join "
            "and leave where lost ones are replaced. Leave recovery= out, or pass a single number of workers."
        )
    return {**arguments, "workers": bounds.low, "recovery": policy, "follows": bounds}


def number_to_begin_with(run: RunSettings) -> int:
    """Return how many workers a fit that follows begins with: those that find room now, within its bounds.

    Raises
    ------
    PlacementError
        No Dask worker has come within ``train.placement.timeout``.
    """
    assert run.client is not None
    assert run.follows is not None
    return followed_workers(run.client, run.on, run.needs(["worker"]).get("worker", {}), run.follows)


def check_most(run: RunSettings, rows: int) -> None:
    """Check that each worker has a row of a global batch, even at the largest number of workers of a fit that follows.

    Raises
    ------
    ValueError
        Batches have too few rows.
    """
    if run.follows is not None:
        check_share(rows, run.follows.high)
