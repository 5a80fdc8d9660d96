"""The adapter of searches over estimators."""

from __future__ import annotations

from dask_train.frameworks.base import Framework


class Estimators(Framework):
    """The adapter for none, whose processes have also imported scikit-learn and what runs trials."""

    imports = (
        "numpy",
        "dask_train.role.main",
        "dask_train.searching.estimators.trial",
        "dask_train.searching.estimators.units",
    )
