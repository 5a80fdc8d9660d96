"""Settings of searches over estimators, as :func:`dask_train.search` documents them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dask_train.searching.settings import SearchSettings, StudySettings


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorSettings(SearchSettings):
    """Settings of either search."""

    scoring: Any = None
    cv: Any = None
    sample_weight: Any = None
    groups: Any = None
    features: Any = None
    label: Any = None
    progress: bool | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GridSettings(EstimatorSettings):
    """Settings of a search of a grid of parameters."""

    params: Any
    refit: bool | str = True


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialsSettings(EstimatorSettings, StudySettings):
    """Settings of a search with Optuna."""

    validation_data: Any = None
