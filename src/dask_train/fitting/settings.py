"""Settings of ``fit``: those of all kinds of model, those of Keras models, and all keywords as types for overloads.

:func:`dask_train.fit` documents each setting.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Required, TypedDict

from dask_train.arguments import checked_by, converted_by, fraction, positive_int, unlisted, whole_number
from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.devices import Gpus
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.config import Deadlines
from dask_train.driver.settings import RunSettings
from dask_train.fitting.wire import BFLOAT16
from dask_train.report.fit_progress import EpochLines, FitDisplay
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule
from dask_train.trainers.settings import LoopSettings, ModelSettings

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def epochs_validated(validation_freq: Any) -> int | list[int]:
    """Return ``validation_freq`` as Keras takes it: epochs in a list, also of a tuple or a range.

    Raises
    ------
    ValueError
        It is neither a whole number of epochs nor a list of epochs.
    """
    every = validation_freq if isinstance(validation_freq, Sequence) else [validation_freq]
    if isinstance(validation_freq, str) or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in every):
        raise ValueError(
            f"validation_freq is {validation_freq!r}; it is a whole number of epochs, or a list of epochs."
        )
    return list(every) if isinstance(validation_freq, Sequence) else every[0]


def check_wire(wire: Any) -> None:
    """Check ``wire``, the dtype in which gradients travel between hosts.

    Raises
    ------
    ValueError
        It is unknown.
    """
    if wire != BFLOAT16:
        raise ValueError(f"wire is {wire!r}; it is {BFLOAT16!r}, or None to let gradients travel as they are.")


@dataclass(frozen=True, kw_only=True, eq=False)
class FitSettings(ModelSettings):
    """Settings of a fit that may be validated."""

    validation_data: Any = None

    @property
    def validates(self) -> bool:
        """Return whether rows besides those to train on are scored."""
        return self.validation_data is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochSettings(LoopSettings, FitSettings):
    """Settings of a fit that trains in epochs of batches, and may be validated."""

    validation_split: float = fraction(0.0)
    validation_steps: int | None = positive_int(None)
    validation_batch_size: int | None = positive_int(None)
    validation_freq: int | Sequence[int] = converted_by(epochs_validated, 1)
    schema: FrameSchema | str | os.PathLike[str] | None = None

    @property
    def validates(self) -> bool:
        """Return whether rows besides those to train on are scored."""
        return super().validates or bool(self.validation_split)

    def display(self, progress: bool | None, **settings: Any) -> FitDisplay | EpochLines:
        """Return the display of a run; with ``verbose=2`` plain lines, which have no settings."""
        if self.verbose == 2 and progress:
            return EpochLines(epochs=self.epochs)
        return FitDisplay(progress, epochs=self.epochs, **settings)

    @property
    def of_task(self) -> dict[str, Any]:
        """Fields of the task that each role process is sent."""
        return {
            **self.of_loop,
            "validation_batch_size": self.validation_batch_size or self.rows,
            "validation_steps": self.validation_steps,
            "validation_freq": self.validation_freq,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientSettings(EpochSettings):
    """Settings of a fit whose workers sum gradients.

    Attributes
    ----------
    wire
        As in :func:`dask_train.fit`.
    """

    wire: str | None = checked_by(check_wire, None)

    @property
    def of_task(self) -> dict[str, Any]:
        """Fields of the task that each role process is sent."""
        return {**super().of_task, "wire": self.wire}


@dataclass(frozen=True, kw_only=True, eq=False)
class KerasSettings(GradientSettings):
    """Settings of a fit of a Keras model.

    Attributes
    ----------
    new_learning_rate
        Resume with the compiled learning rate in place of the checkpoint's.
    callbacks, class_weight, initial_epoch, ps, scorer
        As in :func:`dask_train.fit`.
    """

    callbacks: Any = None
    class_weight: Mapping[int, float] | None = None
    initial_epoch: int = whole_number(0)
    ps: int = 0
    scorer: int = 0
    new_learning_rate: bool = unlisted(False)

    def __post_init__(self) -> None:
        """Check all fields, and that ``initial_epoch`` is at most ``epochs``.

        Raises
        ------
        ValueError
            A field is invalid, or training would begin after its last epoch.
        """
        super().__post_init__()
        if not 0 <= self.initial_epoch <= self.epochs:
            raise ValueError(
                f"initial_epoch is {self.initial_epoch!r}; it is a whole number from 0 to epochs={self.epochs}."
            )


def run_fields(run: RunSettings) -> dict[str, Any]:
    """Return the fields of a task, the argument of each role process, that depend on the run."""
    return {
        "stop_names": frozenset() if run.stop is None else run.stop.names,
        "epoch_rules": run.epoch_rules,
        "checkpoint": run.checkpoint,
        "resume": run.resume,
        "run": uuid.uuid4().hex,
        # Longer than the run's own deadline, whose error tells the cause of a stall.
        "collective_timeout_s": 1.5 * Deadlines.from_dask_config().progress_s,
    }


def trial_fields() -> dict[str, Any]:
    """Return the fields of a trial's task, in place of :func:`run_fields`: the search stops and keeps by itself."""
    return {"run": uuid.uuid4().hex, "collective_timeout_s": 1.5 * Deadlines.from_dask_config().progress_s}


class RunKeywords(TypedDict, total=False):
    """Keywords of every kind of model, without ``wait``: the overloads list it, as it changes the return type."""

    sample_weight: Any
    validation_data: Any
    verbose: str | int | bool
    streaming: bool | int
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    recovery: str | RecoveryPolicy | None
    on: Sequence[str] | None
    resources: Mapping[str, Any] | None
    client: Client | None
    name: str | None
    log: Any


class EpochKeywords(RunKeywords, total=False):
    """Keywords of models that are trained in epochs of batches."""

    workers: int | tuple[int, int] | None
    features: str | Sequence[str] | Mapping[str, Any] | None
    label: str | Sequence[str] | Mapping[str, Any] | None
    schema: FrameSchema | str | os.PathLike[str] | None
    batch_size: int | None
    epochs: int
    validation_split: float
    shuffle: bool | str
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int | Sequence[int]
    seed: int
    gpus: Gpus
    wire: str | None


class KerasKeywords(EpochKeywords, total=False):
    """Keywords of Keras models."""

    callbacks: Any
    class_weight: Mapping[int, float] | None
    initial_epoch: int
    ps: int
    scorer: int
    resume: bool | str


class ModuleKeywords(EpochKeywords, total=False):
    """Keywords of torch modules."""

    loss: Required[Callable[..., Any]]
    optimizer: Required[Any]
    scheduler: Callable[[Any], Any] | None
    scheduler_interval: str
    metrics: Mapping[str, Any] | Sequence[Any] | None
    sync_every: int | None
    outer_learning_rate: float | None
    outer_momentum: float | None
    virtual_workers: int | None
    resume: bool


class TreesKeywords(RunKeywords, total=False):
    """Keywords of estimators of boosted trees."""

    workers: int | None
    features: str | Sequence[str] | None
    label: str | None
    qid: Any
    eval_set: Sequence[tuple[Any, Any]] | None
    eval_qid: Sequence[Any] | None
    resume: bool


class XGBoostKeywords(TreesKeywords, total=False):
    """Keywords of estimators of XGBoost."""

    base_margin: Any
    sample_weight_eval_set: Sequence[Any] | None
    base_margin_eval_set: Sequence[Any] | None
    xgb_model: Any


class LightGBMKeywords(TreesKeywords, total=False):
    """Keywords of estimators of LightGBM."""

    callbacks: Sequence[Any] | None
    init_score: Any
    eval_names: Sequence[str] | None
    eval_sample_weight: Sequence[Any] | None
    eval_init_score: Sequence[Any] | None
    eval_metric: Any
    eval_at: Sequence[int] | None
    categorical_feature: Any
    init_model: Any
