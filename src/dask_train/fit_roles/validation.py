"""Validation data as steps take it: from its first batch again with each validation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dask_train.fit_roles.steps import Feed
from dask_train.fit_roles.task import FitTask
from dask_train.rank_dataset import DataSet


class Validation:
    """One role's view of the validation data.

    Parameters
    ----------
    data
        Of which it goes through its share.

    Attributes
    ----------
    num_batches
        Of one validation.
    feed
        Their batches, one validation after the other.
    """

    def __init__(self, task: FitTask, data: DataSet) -> None:
        assert task.validation_layout is not None
        self._data, self._batch_size = data, task.validation_batch_size
        self.num_batches = task.validation_steps or math.ceil(data.num_rows / self._batch_size)
        self.feed = Feed(
            batches=self._batches(),
            layout=task.validation_layout,
            columns=data.schema.columns,
            num_classes=task.num_classes,
        )

    def _batches(self) -> Iterator[Any]:
        while True:
            turn: Any = self._data.batches(batch_size=self._batch_size, shuffle=False)
            for _, batch in zip(range(self.num_batches), turn, strict=False):
                yield batch
            turn.close()
