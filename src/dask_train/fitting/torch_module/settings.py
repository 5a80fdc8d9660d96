"""The keywords of ``fit`` of a torch module as a type, for its overloads; what they mean is told there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Required, TypedDict

from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.devices import Gpus
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


class ModuleSettings(TypedDict, total=False):
    """All keywords of ``fit`` of a module but ``wait``, on which its type depends."""

    loss: Required[Callable[..., Any]]
    optimizer: Required[Any]
    scheduler: Callable[[Any], Any] | None
    scheduler_interval: str
    metrics: Mapping[str, Any] | Sequence[Any] | None
    batch_size: int | None
    epochs: int
    verbose: str | int | bool
    validation_split: float
    validation_data: Any
    shuffle: bool | str
    sample_weight: Any
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int | Sequence[int]
    features: str | Sequence[str] | Mapping[str, Any] | None
    label: str | Sequence[str] | Mapping[str, Any] | None
    schema: FrameSchema | str | os.PathLike[str] | None
    workers: int | None
    seed: int
    streaming: bool | int
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    resume: bool
    recovery: str | RecoveryPolicy | None
    on: Sequence[str] | None
    resources: Mapping[str, Any] | None
    gpus: Gpus
    client: Client | None
    name: str | None
    log: Any
