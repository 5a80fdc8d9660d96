"""The names of what logs hold among the scores of a run, and those that a rule to stop by waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask_train.arguments import nearest
from dask_train.role.messaging import RESERVED_NAMES
from dask_train.run.stop_rule import EPOCH, of_one

# Why a score can't be compared, and what to do.
NO_NUMBER = (
    "which is not one number. Name another score, or let the metric give one: F1Score and FBetaScore of Keras take "
    "average='macro', R2Score class_aggregation='uniform_average'."
)


def score_name(name: str) -> str:
    """Under which name the value of a log is among scores, some of whose names have a meaning of their own."""
    return f"{name}_metric" if name in (*RESERVED_NAMES, "epoch", "step", "num_steps", "trial") else name


def scores_of(logs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the numbers among logs."""
    return {score_name(name): float(of_one(value)) for name, value in (logs or {}).items() if is_number(value)}


def check_stop_told(awaited: Iterable[str], reported: Iterable[str], unit: str = EPOCH) -> None:
    """Check that the scores have come that a rule looks at, after an epoch, or what there is in place of epochs.

    Raises
    ------
    ValueError
        One has not.
    """
    names = list(map(score_name, reported))
    # Epochs may be validated now and then; all scores of a round come with each.
    validated = unit != EPOCH or any(name.startswith("val_") for name in names)
    left = [name for name in awaited if name != unit and (validated or not name.startswith("val_"))]
    if missing := sorted(set(left) - set(names)):
        raise ValueError(
            f"stop looks at {', '.join(missing)}, and after the first {unit} there are {', '.join(names) or 'none'}."
            f"{nearest(missing[0], names)} Name one of these in stop=."
        )


def check_stop_numbers(awaited: Iterable[str], history: Mapping[str, Sequence[Any]]) -> None:
    """Check that the scores that a rule looks at are numbers, after an epoch.

    Raises
    ------
    ValueError
        One is not.
    """
    no_numbers = {score_name(name) for name, values in history.items() if values and not is_number(values[-1])}
    if several := sorted(no_numbers.intersection(awaited)):
        raise ValueError(f"stop looks at {several[0]}, {NO_NUMBER}")


def is_number(value: Any) -> bool:
    """Return whether a score is a number, or an array of one."""
    try:
        float(of_one(value))
    except (TypeError, ValueError):
        return False
    return True
