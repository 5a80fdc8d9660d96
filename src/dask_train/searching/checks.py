"""What a search is asked for, checked before anything starts; and its data in words."""

from __future__ import annotations

import re
from typing import Any

from dask_train.checkpoint.best import AUTO
from dask_train.checkpoint.policy import Checkpoint
from dask_train.collections.schema.category import listed
from dask_train.collections.schema.frame_schema import FrameSchema, only_categories
from dask_train.extras import check_installed, install_command
from dask_train.fitting.kinds import KINDS, is_keras_model, kind_of, named, registered_class
from dask_train.shared_data.segments import SharedSegments

# A word of these in a metric's name: less of it is better. They are of the metrics of Keras, XGBoost and LightGBM:
# https://keras.io/api/metrics, https://xgboost.readthedocs.io/en/stable/parameter.html (eval_metric) and
# https://lightgbm.readthedocs.io/en/stable/Parameters.html (metric).
_OF_ERRORS = re.compile(
    r"(?<![a-z0-9])(loss|logloss|mlogloss|err|errors?|merror|mae|mse|mape|msle|mphe|rmse|rmsle|smape|l1|l2|quantile|huber|"
    r"fair|poisson|gamma|tweedie|deviance|nloglik|crossentropy|entropy|hinge|logcosh|divergence|leibler|perplexity|brier)"
    r"(?![a-z0-9])"
)


def check_search(build: Any, metric: Any, direction: Any, seed: Any, timeout_s: Any, groups: Any) -> None:
    """Check that trials of models that train in loops can be what was asked for.

    Raises
    ------
    ValueError, TypeError
        They can't.
    ImportError
        Optuna is not installed.
    """
    if hasattr(build, "get_params") and not isinstance(build, type):
        raise ValueError(
            f"build is a {type(build).__name__}. Pass params={{...}} for a grid over its parameters, or a function of "
            "an optuna trial that returns one, with scoring= or cv=."
        )
    if not callable(build):
        raise TypeError(f"build is {build!r}; pass a function of an optuna trial that returns a model.")
    if groups is not None:
        raise ValueError("groups= is of folds, which scoring= or cv= ask for. Leave it out, or pass cv=.")
    for name, value in (("metric", metric), ("direction", direction)):
        if isinstance(value, list | tuple | set):
            raise ValueError(
                f"{name} is {value!r}: search follows one objective. Name the one that counts; for several, train "
                "trials with dt.fit between study.ask() and study.tell()."
            )
    if not isinstance(metric, str) or not metric:
        raise ValueError(f"metric is {metric!r}; pass the name of a score, such as 'val_accuracy' or 'val_loss'.")
    check_study(direction, seed, timeout_s)
    check_installed("dt.search", "optuna", install_command("search"))


class OtherKindError(TypeError):
    """What ``build`` returns is trained by no trial of this search, whatever the parameters."""


class UnfitRowsError(ValueError):
    """The rows of this search are none for the kind of model that ``build`` returns, whatever the parameters."""


def check_built(model: Any) -> None:
    """Check that what ``build`` returned is a model that trains in a loop.

    Raises
    ------
    OtherKindError
        It is an estimator.
    TypeError
        It is something else.
    """
    if is_keras_model(model) or kind_of(model, KINDS) is not None or registered_class(model) is not None:
        return
    kind = type(model).__name__
    if hasattr(model, "fit") and hasattr(model, "get_params"):
        raise OtherKindError(
            f"build returned a {kind}, and without scoring= or cv= a search is over Keras models{named(KINDS)}. Say "
            "how estimators are scored, such as scoring='accuracy' or 'r2', on validation_data= or the folds of cv=."
        )
    raise TypeError(f"build returned a {kind}; it returns a compiled Keras model{named(KINDS)}, or one and a dict.")


def check_study(direction: Any, seed: Any, timeout_s: Any) -> None:
    """Check a study's direction, seed and time limit.

    Raises
    ------
    ValueError
        It can't.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; it is a whole number from 0 to 2**32 - 1, as Optuna's samplers take it.")
    if direction not in (None, "maximize", "minimize"):
        raise ValueError(f"direction is {direction!r}; it is 'maximize' or 'minimize'.")
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0
    ):
        raise ValueError(f"timeout_s is {timeout_s!r}; it is a number of seconds above 0, or None.")


def check_loss(metric: str, direction: str | None, study: Any) -> None:
    """Check that no loss or error is maximised for want of a direction.

    Raises
    ------
    ValueError
        It would be.
    """
    if direction is None and study is None and _OF_ERRORS.search(metric.lower()):
        raise ValueError(
            f"metric={metric!r} is a loss or an error by its name, and more of a score is better unless direction says "
            "otherwise. Pass direction='minimize', or 'maximize' if more of it is better."
        )


def check_best(policy: Checkpoint | None, metric: str, direction: str) -> None:
    """Check that the best one is that of the metric, and nothing else.

    Raises
    ------
    ValueError
        It is another one.
    """
    if policy is None or policy.best is None:
        return
    mode = "min" if direction == "minimize" else "max"
    if policy.best != metric or policy.mode not in (AUTO, mode):
        raise ValueError(
            f"The best checkpoint is to be known by the {policy.mode} of {policy.best!r}, and search looks for the "
            f"{mode} of {metric!r}. Leave best= and mode= out: search keeps its own best in any case."
        )


def described(data: SharedSegments) -> str:
    """Return rows and columns of a data set as text, which a search is compared by when it is resumed."""
    columns = ", ".join(f"{column.dtype} {tuple(column.row_shape)}" for column in data.schema.columns)
    return f"{data.num_rows} rows of {columns}"


def categories_of(schema: FrameSchema | None) -> dict[str, str]:
    """Return the categories of a frame as text, which a search is compared by when it is resumed."""
    if schema is None or not schema.categories:
        return {}
    listing = "; ".join(f"{name!r}: {listed(values)}" for name, values in schema.categories.items())
    return {"categories": f"{listing} ({only_categories(schema).digest})"}
