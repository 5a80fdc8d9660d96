"""Settings of a fit in epochs of batches, which every kind of model has."""

from __future__ import annotations

import pytest

from dask_train.trainers.settings import LoopSettings


def test_rows_of_a_batch_are_as_many_as_in_keras_where_nothing_is_said():
    assert (LoopSettings().rows, LoopSettings(batch_size=8).rows) == (32, 8)
    assert LoopSettings(epochs=3).of_loop["epochs"] == 3


def test_no_workers_are_this_process():
    assert LoopSettings(workers=0).in_process
    assert not LoopSettings().in_process


def test_two_numbers_of_workers_are_for_other_kinds_of_model():
    with pytest.raises(ValueError, match=r"workers is \(2, 8\); two numbers are for torch modules and Keras models"):
        LoopSettings(workers=(2, 8))
    with pytest.raises(ValueError, match="workers is -1; it is a whole number of at least 0"):
        LoopSettings(workers=-1)


def test_what_can_not_be_is_refused_by_name():
    with pytest.raises(ValueError, match="epochs is 0"):
        LoopSettings(epochs=0)
