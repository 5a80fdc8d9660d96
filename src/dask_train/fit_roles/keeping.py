"""Checkpoints of ``fit``: when one is due, what is in it, and how it gets to where it is kept beside training."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dask_train.errors import CheckpointError
from dask_train.fit_roles.task import FitTask, Read
from dask_train.session import Session

_FILE = "fit.pickle"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a checkpoint holds.

    Attributes
    ----------
    run
        Of which run it is.
    order
        What fixes the order of rows, which must be the same where it is resumed: number of rows, batch size, steps of
        an epoch, shuffle, seed.
    epoch, batch
        The next batch, as Keras counts.
    steps
        How many have been taken.
    header, arrays
        The first worker's model, taken apart, with its optimizers.
    own
        Of each worker: seeds and moving averages, which are its own between epochs.
    metrics
        What metrics have counted in this epoch.
    history, epochs
        As in ``History``.
    callbacks
        Of each callback what it holds, pickled.
    read
        What was trained on so far, by which runs.
    steps_by_rank, counted
        With parameter servers: how many steps each worker has taken, and what metrics have counted in each epoch.
    """

    run: str
    order: dict[str, Any]
    epoch: int
    batch: int
    steps: int
    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    history: dict[str, list[Any]]
    epochs: list[int]
    callbacks: list[bytes] = field(repr=False)
    read: list[Read]
    own: list[list[np.ndarray]] = field(default_factory=list, repr=False)
    metrics: list[np.ndarray] = field(default_factory=list, repr=False)
    steps_by_rank: dict[int, int] = field(default_factory=dict)
    counted: dict[int, list[np.ndarray]] = field(default_factory=dict, repr=False)


class Keeper:
    """Keeps checkpoints; in the first worker.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, task: FitTask, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._task, self._session, self._clock = task, session, clock
        self._last_s = clock()
        self._steps = 0
        self._writing: threading.Thread | None = None
        self._failed: BaseException | None = None

    def due(self, steps: int, *, epoch_ends: bool) -> bool:
        """Whether to keep one now, after so many steps in all.

        Raises
        ------
        CheckpointError
            The last one could not be written.
        """
        self._raise_failure()
        if self._task.checkpoint_every is None:
            return False
        if self._writing is not None and self._writing.is_alive():
            return False
        every_steps, every_s = self._task.checkpoint_every
        if every_steps is not None and steps // every_steps > self._steps // every_steps:
            return True
        return epoch_ends or (every_s is not None and self._clock() - self._last_s >= every_s)

    def keep(self, kept: Kept) -> None:
        """Write one in the background; its arrays are not changed any more."""
        self._last_s, self._steps = self._clock(), kept.steps
        self._writing = threading.Thread(target=self._write, args=(kept,), name="dask-train-checkpoint", daemon=True)
        self._writing.start()

    def finish(self) -> None:
        """Wait for the one that is being written.

        Raises
        ------
        CheckpointError
            It could not be written, or took too long.
        """
        if self._writing is not None:
            self._writing.join(self._task.patience_s)
            if self._writing.is_alive():
                raise CheckpointError(f"A checkpoint is still being written after {self._task.patience_s:g} s.")
        self._raise_failure()

    def load(self) -> Kept | None:
        """The last one, where the run is to go on with it: one of its own, or of another run where ``resume`` says so.

        Raises
        ------
        CheckpointError
            It can't be read, or is of other data or another order.
        """
        if self._task.checkpoint_every is None or not (self._task.resume or self._session.attempt):
            return None
        folder = self._session.checkpoints().load(self._session.scratch)
        if folder is None:
            return None
        with (folder / _FILE).open("rb") as file:
            kept: Kept = pickle.load(file)  # noqa: S301 - from the place that the user keeps them in
        if not self._task.resume and kept.run != self._task.run:
            return None
        self._check(kept)
        self._steps = kept.steps
        return kept

    def order(self, num_batches: int) -> dict[str, Any]:
        """What fixes the order of rows."""
        task = self._task
        workers = (
            {"workers": self._session.size} if "ps" in self._session.peers else {}
        )  # each is elsewhere in its rows
        return {
            **workers,
            "rows": self._session.num_rows,
            "batch_size": task.batch_size,
            "batches in an epoch": num_batches,
            "shuffle": task.shuffle,
            "seed": task.seed,
        }

    def _check(self, kept: Kept) -> None:
        here = self.order(kept.order["batches in an epoch"])
        for name, value in kept.order.items():
            if here.get(name) != value:
                raise CheckpointError(
                    f"The checkpoint was made with {name}={value!r}, and this run has {here.get(name)!r}: it could "
                    "not go on with the rows that are left.",
                    change="Pass the same data and arguments as then, or another folder.",
                )

    def _write(self, kept: Kept) -> None:
        def write(folder: Path) -> None:
            with (folder / _FILE).open("wb") as file:
                pickle.dump(kept, file, protocol=5)

        try:
            self._session.checkpoints().save(write, self._session.scratch)
        except BaseException as error:
            self._failed = error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed
