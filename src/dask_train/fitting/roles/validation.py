"""Validation data as steps take it: from its first batch again with each validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_train.fitting.roles.steps import BatchFeed
from dask_train.fitting.spec import FitTask
from dask_train.role.dataset import DataSet
from dask_train.trainers.common.epochs import in_whole_calls


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
        self._taken = 0
        self.feed = BatchFeed(
            batches=self._batches(),
            num_in_call=lambda: min(steps_per_execution, self.num_batches - self._taken),
            columns=task.validation_columns,
            some_row=data.some_row,
            num_classes=task.num_classes,
        )

    def took(self) -> bool:
        """Note a step; whether it was the last of a validation."""
        self._taken = (self._taken + 1) % self.num_batches
        return self._taken == 0

    def _batches(self) -> Iterator[Any]:
        while True:
            batches: Any = self._data.batches(batch_size=self._batch_size, shuffle=False)
            for _, batch in zip(range(self.num_batches), batches, strict=False):
                yield batch
            batches.close()
