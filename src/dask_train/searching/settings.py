"""Settings that searches share, and the keywords of :func:`dask_train.search`, which documents them, as a type."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from dask_train.arguments import CheckedSettings, positive_int
from dask_train.checkpoint.policy import Checkpoint
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.searching.opening import open_study

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


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

    @property
    def has_default_sampler(self) -> bool:
        """Return whether the user has passed no sampler, nor a study that has one."""
        return self.sampler is None and self.study is None

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


class SearchKeywords(TypedDict, total=False):
    """All keywords of :func:`dask_train.search` but ``params``, on which its type depends."""

    metric: str
    direction: str | None
    trials: int
    epochs: int
    batch_size: int | None
    callbacks: Any
    class_weight: Mapping[int, float] | None
    shuffle: bool | str
    seed: int
    validation_data: Any
    validation_split: float
    validation_batch_size: int | None
    sample_weight: Any
    groups: Any
    features: str | Sequence[str] | Mapping[str, Any] | None
    label: str | Sequence[str] | Mapping[str, Any] | None
    schema: FrameSchema | str | os.PathLike[str] | None
    workers_per_trial: int
    concurrency: int | None
    sampler: Any
    pruner: Any
    storage: Any
    study_name: str | None
    study: Any
    timeout_s: float | None
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    resume: bool
    on: Sequence[str] | None
    resources: Mapping[str, Any] | None
    client: Client | None
    progress: bool | None
    log: Any
    scoring: Any
    cv: Any
    refit: bool | str
