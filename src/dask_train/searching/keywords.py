"""The keywords of ``search`` as a type, for its overloads; ``search`` describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from dask_train.checkpoint.policy import Checkpoint
from dask_train.collections.schema.frame_schema import FrameSchema

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


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
