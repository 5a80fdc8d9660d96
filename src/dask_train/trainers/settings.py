"""Settings of a fit that every kind of model has, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask_train.arguments import (
    CheckedSettings,
    check_whole_number,
    checked_by,
    one_of,
    positive_int,
    whole_number,
)
from dask_train.report.progress import progress_of

# Rows of a global batch where nothing else is said; as in Keras.
BATCH_SIZE = 32


def _check_workers(workers: Any) -> None:
    if isinstance(workers, tuple | list):
        raise ValueError(
            f"workers is {workers!r}; two numbers are for torch modules and Keras models, whose number of workers may "
            "follow the Dask workers. Pass a single one."
        )
    check_whole_number("workers", workers, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSettings(CheckedSettings):
    """Settings of a fit, whatever the kind of model."""

    sample_weight: Any = None
    verbose: str | int | bool = checked_by(progress_of, "auto")
    features: str | Sequence[str] | Mapping[str, Any] | None = None
    label: str | Sequence[str] | Mapping[str, Any] | None = None
    workers: int | None = checked_by(_check_workers, None)

    @property
    def in_process(self) -> bool:
        """Return whether this process trains, without any other."""
        return self.workers == 0

    @property
    def validates(self) -> bool:
        """Return whether rows besides those to train on are scored."""
        return False

    @property
    def progress(self) -> bool | None:
        """Return whether to show how the run goes; None means in terminals and notebooks."""
        return progress_of(self.verbose)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopSettings(ModelSettings):
    """Settings of a fit that goes through rows in epochs of batches; a kind of model adds its own fields.

    Attributes
    ----------
    batch_size
        Rows of a global batch, over all workers. None for the default: :attr:`rows` is what it means.
    epochs, shuffle, steps_per_epoch, seed
        As in :func:`dask_train.fit`.
    """

    batch_size: int | None = positive_int(None)
    epochs: int = positive_int(1)
    shuffle: bool | str = one_of(True, False, "partition", default=True)
    steps_per_epoch: int | None = positive_int(None)
    seed: int = whole_number(0)

    @property
    def rows(self) -> int:
        """Rows of a global batch."""
        return BATCH_SIZE if self.batch_size is None else self.batch_size

    @property
    def of_loop(self) -> dict[str, Any]:
        """Fields of the task of a training loop."""
        return {
            "epochs": self.epochs,
            "batch_size": self.rows,
            "steps_per_epoch": self.steps_per_epoch,
            "shuffle": self.shuffle,
            "seed": self.seed,
        }
