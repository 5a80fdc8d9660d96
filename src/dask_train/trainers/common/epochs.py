"""Assigns batches to epochs, as Keras counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dask_train.data.account import BatchRange
from dask_train.role.session import Session
from dask_train.trainers.common.task import LoopTask


class Epochs:
    """The epochs of a call of ``fit``.

    An epoch of ``steps_per_epoch`` begins in the data where the last one ended, takes whole calls of
    ``steps_per_execution`` batches, and ends with the data at the latest, as Keras (3.15) counts steps on arrays.

    Parameters
    ----------
    batches_of_data
        Batches of one pass over the data.
    steps_per_epoch, steps_per_execution, initial_epoch
        As in Keras.

    Attributes
    ----------
    length
        Batches of an epoch; the last epoch of a pass has what is left of it.
    num_steps
        Steps of an epoch, as callbacks get it: ``steps_per_epoch`` where it is given.

    Notes
    -----
    A position is a number of batches: the first batch of the first pass has position 0, and the first epoch begins with
    pass ``initial_epoch``, so that training epoch by epoch has the rows in another order in each.
    """

    def __init__(
        self,
        batches_of_data: int,
        steps_per_epoch: int | None = None,
        steps_per_execution: int = 1,
        initial_epoch: int = 0,
    ) -> None:
        self.batches_of_data, self.steps_per_epoch = batches_of_data, steps_per_epoch
        self.steps_per_execution, self.initial_epoch = steps_per_execution, initial_epoch
        self.num_steps = steps_per_epoch or batches_of_data
        self.length = min(batches_of_data, in_whole_calls(self.num_steps, steps_per_execution))
        self._epochs_per_pass = -(-batches_of_data // self.length)

    @classmethod
    def of(cls, task: LoopTask, num_rows: int, steps_per_execution: int = 1) -> Epochs:
        """Return the epochs of a task, with that many rows."""
        batches = -(-num_rows // task.batch_size)
        return cls(batches, task.steps_per_epoch, steps_per_execution, task.initial_epoch)

    def first(self, epoch: int) -> int:
        """Return the position of an epoch's first batch."""
        data_pass, place = divmod(epoch - self.initial_epoch, self._epochs_per_pass)
        return (self.initial_epoch + data_pass) * self.batches_of_data + place * self.length

    def size(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return self.first(epoch + 1) - self.first(epoch)

    def place(self, position: int) -> tuple[int, int]:
        """Return the epoch of a position, and the number of the batch in it."""
        data_pass, batch = divmod(position, self.batches_of_data)
        place, batch = divmod(batch, self.length)
        return self.initial_epoch + (data_pass - self.initial_epoch) * self._epochs_per_pass + place, batch

    def begins_pass(self, epoch: int) -> bool:
        """Return whether an epoch begins with a pass over the data."""
        return self.first(epoch) % self.batches_of_data == 0

    def in_call(self, epoch: int, batch: int) -> int:
        """Return the number of batches that a call of Keras takes which begins at this batch."""
        return min(self.steps_per_execution, self.size(epoch) - batch)

    def batches(self, session: Session, task: LoopTask, position: int) -> Any:
        """Return an iterator over a rank's shares of the batches from a position to the last epoch; to be closed."""
        return session.batches(
            epochs=max(1, -(-self.first(task.epochs) // self.batches_of_data)),
            batch_size=task.batch_size,
            shuffle=task.shuffle,
            seed=task.seed,
            start=divmod(position, self.batches_of_data),
        )

    def batch_ranges(self, first: int, stop: int, task: LoopTask, size: int = 0) -> list[BatchRange]:
        """Return the ledger's batch ranges from position ``first`` up to ``stop``, exclusive, of ``size`` ranks."""
        ranges = []
        while first < stop:
            epoch, batch = divmod(first, self.batches_of_data)
            some = min(self.batches_of_data - batch, stop - first)
            ranges.append(
                BatchRange(
                    dataset=0,
                    turn=0,
                    epoch=epoch,
                    batch_size=task.batch_size,
                    first=batch,
                    taken=some,
                    done=some,
                    size=size,
                    shares=task.num_shares,
                )
            )
            first += some
        return ranges

    def warning(self) -> str | None:
        """Return a warning, as Keras has it, if epochs end with the data before ``steps_per_epoch``; else None."""
        short = self.batches_of_data - (self._epochs_per_pass - 1) * self.length
        if self.steps_per_epoch is None or short >= self.steps_per_epoch:
            return None
        which = "each epoch" if self._epochs_per_pass == 1 else f"one epoch of {self._epochs_per_pass}"
        return (
            f"steps_per_epoch={self.steps_per_epoch}, and the data has {self.batches_of_data} batches: as in Keras, an "
            f"epoch ends with the data, here {which} after {short} steps. Leave steps_per_epoch out to go through all "
            "of the data in each epoch."
        )


class BatchStream(Iterator[Any]):
    """Iterates over a rank's shares of the batches that are left, which may be shared anew among other ranks.

    Parameters
    ----------
    begin
        Returns an iterator from the position of training on, to be closed.
    """

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin, self._batches = begin, begin()

    def __next__(self) -> Any:
        """Return the next share."""
        return next(self._batches)

    def deal_again(self) -> None:
        """Drop what was read ahead, and continue from the position of training."""
        self._batches.close()
        self._batches = self._begin()

    def close(self) -> None:
        """End reading."""
        self._batches.close()


def in_whole_calls(num_steps: int, steps_per_execution: int) -> int:
    """Round a number of steps up to whole calls of Keras' ``steps_per_execution``."""
    return -(-num_steps // steps_per_execution) * steps_per_execution
