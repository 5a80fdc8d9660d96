"""Which models of trees find categories of frames by value, and which take their codes."""

from __future__ import annotations

import os
from typing import Any

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Columns
from dask_train.frameworks.xgboost.linear import is_linear


def finds_categories(model: Any) -> bool:
    """Return whether a model finds categories of a frame by value.

    XGBoost does from 3.1 on, with boosters that were fitted with a frame of categories. Other boosters of it take the
    codes that the frame has.

    Parameters
    ----------
    model
        Of any kind; of XGBoost also the path of a booster's file.
    """
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(model).__mro__}
    if isinstance(model, str | os.PathLike):
        import xgboost

        model = xgboost.Booster(model_file=model)
    elif "xgboost.sklearn.XGBModel" in kinds:
        if not model.__sklearn_is_fitted__():
            return True
        model = model.get_booster()
    elif "xgboost.core.Booster" not in kinds:
        return True
    # Linear boosters know none, and raise where they are asked.
    return hasattr(model, "get_categories") and not is_linear(model) and not model.get_categories().empty()


def check_going_on(library: str, start: Any, known: FrameSchema | None, columns: Columns) -> None:
    """Refuse categories if the model to continue takes codes whose values are unknown.

    Raises
    ------
    ValueError
        The data has some, and neither XGBoost's model nor this process knows those of its fit.
    """
    of_codes = library == "xgboost" and start is not None and columns.matrix.categories is not None
    if of_codes and not (known is not None and known.categories) and not finds_categories(start):
        raise ValueError(
            "The data has categories, and xgb_model= knows none: the same codes might mean other values. XGBoost keeps "
            "them from version 3.1 on, in models that were fitted with a frame. Fit such a model anew."
        )
