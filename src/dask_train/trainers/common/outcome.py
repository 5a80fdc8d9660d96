"""What training leaves in the first worker, and what it was trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.account import BatchRange

# A run, its number of workers, and what each of them has trained on.
Read = tuple[str, int, dict[int, list[BatchRange]]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the chief returns.

    Attributes
    ----------
    header, arrays
        The trained model, taken apart, or its parts by name; empty for one that was trained in place.
    history, epoch
        As Keras' ``History`` has them.
    callbacks
        What each of the user's callbacks holds after training, pickled; empty if it can't be. Nothing of
        those that were called in place.
    steps
        How many steps were taken, also before it was resumed.
    read
        What was trained on before it was resumed from a checkpoint of another run.
    applied
        By worker: the batches of this run that have gone into the weights.
    num_rows
        Of the data.
    warnings
        What Keras would have warned of.
    num_steps
        Of an epoch.
    best_epoch
        Of which epoch the model is, where that of the best checkpoint was to be taken; None of the last.
    stop_reason
        Why the loop has ended training early; empty if it has not.
    stop_training
        Keras' flag of the trained model: whether training was ended early, by a callback or by the loop.
    all_reduce_s, waiting_s
        Seconds that this role has waited for others, and summed; and waited alone.
    """

    header: dict[str, Any] = field(repr=False)
    history: dict[str, list[Any]]
    epoch: list[int]
    steps: int
    read: list[Read]
    num_rows: int
    warnings: list[str]
    num_steps: int
    all_reduce_s: float
    waiting_s: float
    applied: dict[int, list[BatchRange]]
    arrays: list[np.ndarray] = field(default_factory=list, repr=False)
    callbacks: list[bytes] = field(default_factory=list, repr=False)
    best_epoch: int | None = None
    stop_reason: str = ""
    stop_training: bool = False
