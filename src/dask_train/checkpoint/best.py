"""Which checkpoint is the best one: by a score, whose name and direction the user gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_train.errors import CheckpointError

AUTO, MODES = "auto", ("min", "max")


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best checkpoint of a training so far, as the manifest of each later one names it.

    Attributes
    ----------
    of, mode
        The score, and whether less ("min") or more ("max") of it is better.
    score
        The best one.
    checkpoint
        Which one was kept with it.
    """

    of: str
    mode: str
    score: float
    checkpoint: str


def is_better(value: float, than: float | None, *, mode: str) -> bool:
    """Return whether one score is better than another, or the first; what is no number never is."""
    if math.isnan(value):
        return False
    return than is None or (value > than if mode == "max" else value < than)


def mode_by_name(name: str | None, mode: str) -> str:
    """Give "min" for a loss, as Keras has it; names of other scores don't show it, so the mode stays as it is."""
    return "min" if mode == AUTO and name is not None and name.removeprefix("val_") == "loss" else mode


def check_best(best: Best | None, name: str | None, mode: str, where: str) -> Best | None:
    """Return the best one so far, if training continues to look for the same.

    Raises
    ------
    CheckpointError
        It was the best one by another score: whether the best by this one was kept is not known.
    """
    if name is None or best is None:
        return None
    if best.of != name or mode not in (AUTO, best.mode):
        raise CheckpointError(
            f"The best checkpoint at {where} is the one with the {best.mode} of {best.of!r}, and this run keeps that "
            f"with the {mode if mode != AUTO else 'best'} of {name!r}.",
            "The best one by another score may have been removed.",
            f"Pass best={best.of!r} and mode={best.mode!r} as then, leave best= out, or use another folder.",
        )
    return best
