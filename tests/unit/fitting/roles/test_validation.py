"""Validation data as steps take it: in whole calls, and from the first batch again with each validation."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.fitting.roles.validation import Validation


class Data:
    """Ten rows, each its own number; counts the turns that were left."""

    num_rows = 10
    some_row = None
    closed = 0

    def batches(self, *, batch_size, shuffle):
        assert not shuffle
        try:
            for start in range(0, self.num_rows, batch_size):
                yield np.arange(start, min(start + batch_size, self.num_rows))
        finally:
            self.closed += 1


def validation(steps=None, in_call=1, batch_size=4):
    task = SimpleNamespace(
        validation_columns="layout", validation_batch_size=batch_size, validation_steps=steps, num_classes=None
    )
    return Validation(task, Data(), in_call)


@pytest.mark.parametrize(
    ("steps", "in_call", "num_batches", "warns"),
    [(None, 1, 3, False), (2, 1, 2, False), (2, 3, 3, False), (1, 2, 2, False), (9, 1, 3, True), (9, 4, 3, True)],
)
def test_steps_are_whole_calls_and_end_with_the_data(steps, in_call, num_batches, warns):
    it = validation(steps, in_call)
    assert it.num_batches == num_batches
    assert (it.warning is not None) is warns
    if warns:
        assert it.warning.startswith("validation_steps=9, and the validation data has 3 batches")


def test_each_validation_begins_with_the_first_batch():
    it = validation(steps=2)
    starts = [int(batch[0]) for batch in itertools.islice(it.feed.batches, 5)]
    assert starts == [0, 4, 0, 4, 0]
    assert it._data.closed >= 2, "what is read ahead is given back"


def test_a_validation_that_was_ended_early_is_followed_by_one_from_the_first_batch():
    it, starts = validation(), []
    for num_batches in (2, 1, 3, 3):
        it.begin()
        for _ in range(num_batches):
            starts.append(int(next(it.feed.batches)[0]))
            it.took()
    assert starts == [0, 4, 0, 0, 4, 8, 0, 4, 8]
    assert it._data.closed >= 3, "what is read ahead is given back"


def test_the_last_step_of_a_validation_is_told():
    it = validation()
    assert [it.took() for _ in range(7)] == [False, False, True, False, False, True, False]


def test_a_call_takes_no_batch_of_the_next_validation():
    it = validation(in_call=2)
    sizes = []
    for _ in range(4):
        sizes.append(it.feed.num_in_call())
        for _ in range(sizes[-1]):
            it.took()
    assert sizes == [2, 1, 2, 1]
