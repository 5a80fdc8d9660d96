"""Weights of rows, as scikit-learn hands them on without metadata routing: to the last step's fit, and to scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.pipeline import Pipeline

from dask_train.compat.sklearn import scorer_takes_weights
from dask_train.input_errors import warn_at_the_call

_WEIGHT = "sample_weight"


def last_of(estimator: Any) -> Any:
    """Return the last step of a pipeline, also of one within one; of all else the estimator itself."""
    return last_of(estimator.steps[-1][1]) if isinstance(estimator, Pipeline) else estimator


def fit(estimator: Any, X: Any, y: Any, weight: Any) -> Any:
    """Fit it, with targets and weights where there are some."""
    more = {} if weight is None else {_name_in(estimator): weight}
    return estimator.fit(X, *(() if y is None else (y,)), **more)


def check_takes_weight(estimator: Any, method: str = "fit") -> None:
    """Check that an estimator, or a pipeline's last step, can be fitted with weights.

    Raises
    ------
    ValueError
        It can't.
    """
    last = last_of(estimator)
    parameters = _signature_of(getattr(last, method, None))
    if _WEIGHT in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    name = last if last is None or isinstance(last, str) else type(last).__name__
    raise ValueError(
        f"There are sample weights, and {name} takes none: its {method} has no sample_weight. Pass another estimator, "
        "or leave sample_weight out."
    )


def weighted(estimator: Any, scorers: Mapping[str, Callable[..., float]]) -> frozenset[str]:
    """Return the names of the scorers that are given the weights of the rows they score, as in ``GridSearchCV``.

    Those that can take them, of an estimator alone. Of a pipeline none is, as its weights are those of a step, which
    scikit-learn knows as ``step__sample_weight``. Scorers that can't are warned of.
    """
    if isinstance(estimator, Pipeline):
        return frozenset()
    names = frozenset(name for name, scorer in scorers.items() if _takes(scorer))
    for name in scorers.keys() - names:
        warn_at_the_call(
            f"The score {name!r} takes no sample_weight: all rows count alike in it, while the estimators are fitted "
            "with weights."
        )
    return names


def _takes(scorer: Any) -> bool:
    takes = scorer_takes_weights(scorer)
    return takes if takes is not None else _WEIGHT in _signature_of(scorer)


def _name_in(estimator: Any) -> str:
    if not isinstance(estimator, Pipeline):
        return _WEIGHT
    name, last = estimator.steps[-1]
    return f"{name}__{_name_in(last)}"


def _signature_of(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # it is none, or is written in C
        return {}
