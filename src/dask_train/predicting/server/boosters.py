"""Boosters that take no arrays, as what does."""

from __future__ import annotations

from typing import Any

from dask_train.frameworks.xgboost.linear import is_linear


class BoosterOfRows:
    """A booster of XGBoost that predicts of arrays and frames, in place: no matrix of XGBoost's own is made of them.

    Linear boosters (``booster="gblinear"``) can't predict in place, so theirs is made of a matrix.

    Parameters
    ----------
    booster
        An ``xgboost.Booster``.
    """

    __name__ = "Booster"

    def __init__(self, booster: Any) -> None:
        self._booster, self._is_linear = booster, is_linear(booster)

    def predict(self, x: Any) -> Any:
        """Return what it says of each row, by the best round where early stopping has found one."""
        if self._is_linear:  # which has no rounds to choose from, and would miss names of the columns of arrays
            import xgboost

            return self._booster.predict(xgboost.DMatrix(x), validate_features=hasattr(x, "iloc"))
        best = self._booster.attr("best_iteration")
        return self._booster.inplace_predict(x, iteration_range=(0, 0 if best is None else int(best) + 1))


def rows_to_booster(model: Any) -> Any:
    """Give a model of arrays for a booster of XGBoost; others as they are."""
    is_booster = any(f"{kind.__module__}.{kind.__name__}" == "xgboost.core.Booster" for kind in type(model).__mro__)
    return BoosterOfRows(model) if is_booster else model
