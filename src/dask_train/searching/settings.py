"""Settings that searches share, as :func:`dask_train.search` documents them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dask_train.arguments import CheckedSettings, positive_int
from dask_train.searching.opening import open_study


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchSettings(CheckedSettings):
    """Settings of any search."""

    concurrency: int | None = positive_int(None)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudySettings(SearchSettings):
    """Settings of a search with Optuna."""

    direction: str | None = None
    trials: int = positive_int(20)
    seed: int = 0
    sampler: Any = None
    pruner: Any = None
    storage: Any = None
    study_name: str | None = None
    study: Any = None
    timeout_s: float | None = None

    def open_study(self, kept_name: str | None = None) -> Any:
        """Return the study that the user has passed, else a new one, or the one of its name, or of a kept search."""
        return open_study(
            self.study,
            direction=self.direction,
            sampler=self.sampler,
            pruner=self.pruner,
            storage=self.storage,
            study_name=self.study_name or (None if self.study is not None else kept_name),
            seed=self.seed,
        )
