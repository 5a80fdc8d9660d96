"""Linear models over the partitions of a data set, with scikit-learn's parameters and coefficients.

scikit-learn is an optional extra: ``pip install '.[linear]'`` in a clone. The estimators are imported when they are
used: what solves in a role process needs neither scikit-learn nor Dask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dask_train.extras import check_installed, install_command

if TYPE_CHECKING:
    from dask_train.linear_model.general import GammaRegressor, PoissonRegressor, TweedieRegressor
    from dask_train.linear_model.linear import LinearRegression, Ridge
    from dask_train.linear_model.logistic import LogisticRegression
    from dask_train.linear_model.penalised import ElasticNet, Lasso

_HOMES = {
    "ElasticNet": "penalised",
    "GammaRegressor": "general",
    "Lasso": "penalised",
    "LinearRegression": "linear",
    "LogisticRegression": "logistic",
    "PoissonRegressor": "general",
    "Ridge": "linear",
    "TweedieRegressor": "general",
}

__all__ = [
    "ElasticNet",
    "GammaRegressor",
    "Lasso",
    "LinearRegression",
    "LogisticRegression",
    "PoissonRegressor",
    "Ridge",
    "TweedieRegressor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_installed(f"{__name__}.{name}", "sklearn", install_command("linear"))
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
