"""Boosters that take no arrays, as what does."""

from __future__ import annotations

from typing import Any


class BoosterOfRows:
    """A booster of XGBoost that predicts of arrays and frames, in place: no matrix of XGBoost's own is made of them.

    Parameters
    ----------
    booster
        An ``xgboost.Booster``.
    """

    __name__ = "Booster"

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    def predict(self, x: Any) -> Any:
        """Return what it says of each row, by the best round where early stopping has found one."""
        best = self._booster.attr("best_iteration")
        return self._booster.inplace_predict(x, iteration_range=(0, 0 if best is None else int(best) + 1))


def rows_to_booster(model: Any) -> Any:
    """Give a model of arrays for a booster of XGBoost; others as they are."""
    is_booster = any(f"{kind.__module__}.{kind.__name__}" == "xgboost.core.Booster" for kind in type(model).__mro__)
    return BoosterOfRows(model) if is_booster else model
