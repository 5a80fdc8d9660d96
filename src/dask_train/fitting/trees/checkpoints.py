"""Check whether rounds may resume from a checkpoint: what it began with has to be the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Any

from dask_train.fitting.trees.task import TreesTask
from dask_train.role.session import Session

# How many differences a message names.
_NAMED = 6


def configuration_of(task: TreesTask, session: Session, *, free: Set[str]) -> dict[str, Any]:
    """Return what a checkpoint has to have been made with, by name: parameters that are not free, and the data.

    Functions have no text by which they are known again, and are left out.
    """
    matrix = task.columns.matrix
    params = {name: repr(value) for name, value in task.estimator.get_params().items() if name not in free}
    configuration = {name: value for name, value in params.items() if " at 0x" not in value}
    configuration |= {"rows": f"{session.num_rows:,}", "features": repr(matrix.names or matrix.row_shape[0])}
    if matrix.categories is not None:  # trees know them by their codes
        text = repr([known if known is None else list(known) for known in matrix.categories])
        long = f"{text[:100]}... {hashlib.sha256(text.encode()).hexdigest()[:8]}"
        configuration["categories"] = text if len(text) <= len(long) else long
    return configuration


def check_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that rounds continue with what they began with.

    Raises
    ------
    ValueError
        They do not; the message says what differs.
    """
    differing = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
    if differing:
        differences = ", ".join(
            f"{name}={then.get(name)!r} there and {now.get(name)!r} here" for name in differing[:_NAMED]
        )
        differences += f", and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise ValueError(
            f"The checkpoint is of another fit: {differences}. Go on with the same estimator and data; only "
            "n_estimators and the number of workers may differ. Or begin anew, in another folder or without "
            "resume=True."
        )
