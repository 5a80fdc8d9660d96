"""Validation data as steps take it: from its first batch again with each validation.

A scorer may validate beside training; here is what the first of workers that train synchronously sees of that.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from dask_train.compat.keras.compiled import is_validated
from dask_train.fitting.roles.spool import Spool
from dask_train.fitting.roles.steps import BatchFeed
from dask_train.fitting.spec import FitTask
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.trainers.common.epochs import in_whole_calls

# Part of the task's timeout within which the scorer has to take each step at the end: a run in which no worker makes
# progress for two thirds of that timeout is ended.
_SHARE_OF_TIMEOUT = 1 / 3


class Validation:
    """One role's view of the validation data.

    Parameters
    ----------
    data
        Of which it goes through its share.
    steps_per_execution
        Of the model.

    Attributes
    ----------
    num_batches
        Of one validation: ``validation_steps`` in whole calls of Keras', or all that there are.
    feed
        Their batches, one validation after the other.
    warning
        What Keras warns of; None if all is well.
    """

    def __init__(self, task: FitTask, data: DataSet, steps_per_execution: int) -> None:
        assert task.validation_columns is not None
        self._data, self._batch_size = data, task.validation_batch_size
        num_batches = -(-data.num_rows // self._batch_size)
        steps = task.validation_steps or num_batches
        self.num_batches = min(num_batches, in_whole_calls(steps, steps_per_execution))
        self.warning = (
            f"validation_steps={steps}, and the validation data has {num_batches} batches: as in Keras, validation "
            "ends with the data."
            if steps > num_batches
            else None
        )
        self._taken, self._begins_again = 0, False
        self._read = self._batches()
        self.feed = BatchFeed(
            batches=self._read,
            num_in_call=lambda: min(steps_per_execution, self.num_batches - self._taken),
            columns=task.validation_columns,
            some_row=data.some_row,
            num_classes=task.num_classes,
        )

    def took(self) -> bool:
        """Note a step; whether it was the last of a validation."""
        self._taken = (self._taken + 1) % self.num_batches
        return self._taken == 0

    def begin(self) -> None:
        """Begin with the first batch, also where a callback has ended the last validation early."""
        self._begins_again, self._taken = self._taken > 0, 0

    def close(self) -> None:
        """Give back what is read, which is some of it where a callback has ended the last validation early."""
        self._read.close()

    def _batches(self) -> Generator[Any, None, None]:
        while True:
            batches: Any = self._data.batches(batch_size=self._batch_size, shuffle=False)
            with closing(batches):
                for _, batch in zip(range(self.num_batches), batches, strict=False):
                    yield batch
                    if self._begins_again:
                        self._begins_again = False
                        break


class ValidationBeside:
    """Gives weights to the scorer at the ends of epochs, and puts what it finds into the history.

    Parameters
    ----------
    task, session, model
        Of the first worker.
    spool
        On which the scorer finds weights; closed with this.
    """

    def __init__(self, task: FitTask, session: Session, model: Any, spool: Spool) -> None:
        self._task, self._session, self._model, self._spool = task, session, model, spool

    def epoch_ends(self, epoch: int) -> bool:
        """Let the weights of the moment be validated, if they are to be, and have not been; whether they will."""
        if epoch in self._spool.scores or not self._is_validated(epoch):
            return False
        self._spool.put(epoch, self._model)
        return True

    def found(self, epochs: Sequence[int]) -> dict[str, list[float]]:
        """Scores by name, one for each of these epochs; NaN for those that were not validated."""
        return self._spool.aligned(epochs)

    def take_known(self, history: dict[str, list[Any]], epochs: Sequence[int]) -> None:
        """Take what a checkpoint has of validation out of its history: Keras continues with the rest."""
        validated = [epoch for epoch in epochs if self._is_validated(epoch)]
        for name in [name for name in history if name.startswith("val_")]:
            values = history.pop(name)
            of = epochs if len(values) == len(epochs) else validated
            if len(of) != len(values):
                self._session.notice(
                    f"The checkpoint has {len(values)} values of {name} for {len(epochs)} epochs, and does not tell "
                    "of which: the history begins without them. Pass validation_freq as it was then to keep them."
                )
                continue
            for epoch, value in zip(of, values, strict=True):
                if not (isinstance(value, float) and math.isnan(value)):  # else it may be of several classes
                    self._spool.scores.setdefault(epoch, {})[name] = value

    def finish(self) -> None:
        """Wait for the last epoch's scores, unless the run is to stop; a notice tells where they do not come."""
        session, timeout_s = self._session, self._task.collective_timeout_s * _SHARE_OF_TIMEOUT
        session._link.moved("waiting for the scorer")
        in_time = self._spool.wait_for_last(
            timeout_s, moved=lambda: session._link.moved("waiting for the scorer"), should_stop=session.should_stop
        )
        if not in_time and not session.should_stop():
            session.notice(
                f"The scorer has not validated the last epoch: it took no step for {timeout_s:g} s. Its scores are "
                "NaN in the history."
            )

    def close(self) -> None:
        """Hang up."""
        self._spool.close()

    def _is_validated(self, epoch: int) -> bool:
        return is_validated(self._model, epoch, self._task.validation_freq)
