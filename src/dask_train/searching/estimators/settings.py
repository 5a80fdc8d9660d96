"""Settings of searches over estimators, as :func:`dask_train.search` tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dask_train.arguments import CheckedSettings, positive_int


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorSettings(CheckedSettings):
    """Settings of either search."""

    scoring: Any = None
    cv: Any = None
    sample_weight: Any = None
    groups: Any = None
    features: Any = None
    label: Any = None
    concurrency: int | None = positive_int(None)
    progress: bool | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GridSettings(EstimatorSettings):
    """Settings of a search of a grid of parameters."""

    params: Any
    refit: bool | str = True


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialsSettings(EstimatorSettings):
    """Settings of a search with Optuna."""

    direction: str | None = None
    trials: int = positive_int(20)
    seed: int = 0
    validation_data: Any = None
    sampler: Any = None
    pruner: Any = None
    storage: Any = None
    study_name: str | None = None
    study: Any = None
    timeout_s: float | None = None
