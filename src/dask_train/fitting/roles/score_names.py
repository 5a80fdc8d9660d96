"""Under which names what logs hold is among the scores of a run."""

from __future__ import annotations

from typing import Any

from dask_train.role.messaging import RESERVED_NAMES


def score_name(name: str) -> str:
    """Under which name the value of a log is among scores, some of whose names have a meaning of their own."""
    return f"{name}_metric" if name in (*RESERVED_NAMES, "epoch", "step", "num_steps", "trial") else name


def scores_of(logs: dict[str, Any] | None) -> dict[str, Any]:
    """The numbers among logs."""
    return {score_name(name): float(value) for name, value in (logs or {}).items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
