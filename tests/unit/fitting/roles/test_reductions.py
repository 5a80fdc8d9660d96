"""Parts of a loss on ranks with uneven shares of a batch, weighted by these, are the loss of the whole batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras.src.losses import loss as loss_module
from keras.src.trainers import trainer as trainer_module

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.aside import rehearsing
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.reductions import _Reducing, losses_of_all

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(7, 3)).astype("f4")
WEIGHTS = RANDOM.random((7, 1)).astype("f4")
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]], bool)
ROWS = [slice(0, 4), slice(4, 7)]


def reduced(values, sample_weight=None, mask=None, reduction="sum_over_batch_size"):
    """What Keras makes of the whole batch."""
    return loss_module.reduce_weighted_values(values, sample_weight=sample_weight, mask=mask, reduction=reduction)


@pytest.fixture
def parts(on_each_rank):
    """Each rank's part of a loss, times its share of the rows."""

    def of(rows, sample_weight, mask, reduction):
        total = sum(len(VALUES[some]) for some in rows)

        def part(rank, replicas):
            share, some = RowFraction(), rows[rank]
            share.weight, share.rows = len(VALUES[some]) / total, max(1, len(VALUES[some]))
            if not share.weight:  # some row, which weighs nothing
                some = slice(0, 1)
            reducing = _Reducing(loss_module.reduce_weighted_values, replicas, backend_of("tensorflow"), share)
            given = [
                None if array is None else keras.ops.convert_to_tensor(array[some]) for array in (sample_weight, mask)
            ]
            found = reducing(keras.ops.convert_to_tensor(VALUES[some]), *given, reduction=reduction)
            return share.weight * np.array(found)

        return on_each_rank(part, len(rows))

    return of


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "mean", "mean_with_sample_weight"])
@pytest.mark.parametrize(("sample_weight", "mask"), [(None, None), (WEIGHTS, None), (None, MASK), (WEIGHTS, MASK)])
@pytest.mark.parametrize("rows", [ROWS, [*ROWS, slice(7, 7)]], ids=["all have rows", "one has none"])
def test_parts_add_up_to_the_whole(parts, rows, sample_weight, mask, reduction):
    found = parts(rows, sample_weight, mask, reduction)
    np.testing.assert_allclose(sum(found), reduced(VALUES, sample_weight, mask, reduction), rtol=1e-5)
    assert all(part == 0 for part in found[2:])


def test_a_batch_that_is_masked_altogether_is_no_loss(parts):
    nothing = np.zeros_like(MASK)
    assert sum(parts(ROWS, None, nothing, "mean_with_sample_weight")) == 0.0


class Replicas:
    """Ranks that must not be asked."""

    size = 2

    def channel(self, *_):
        return "a channel"


def test_what_a_function_of_ones_own_has_reduced_is_left_as_it_is():
    reducing = _Reducing(loss_module.reduce_weighted_values, Replicas(), backend_of("tensorflow"), RowFraction())
    assert float(reducing(keras.ops.convert_to_tensor(3.0), reduction="mean")) == 3.0


def test_what_is_computed_aside_is_of_this_process_alone():
    share = RowFraction()
    share.weight = 0.25
    reducing = _Reducing(loss_module.reduce_weighted_values, Replicas(), backend_of("tensorflow"), share)
    with rehearsing():
        found = [float(reducing(VALUES, WEIGHTS, reduction=how)) for how in ("sum", "mean_with_sample_weight")]
        assert float(reducing.factor_of_sums("float32")) == 1.0
    np.testing.assert_allclose(
        found, [reduced(VALUES, WEIGHTS, None, how) for how in ("sum", "mean_with_sample_weight")]
    )


def test_keras_own_functions_are_back_afterwards():
    before = loss_module.reduce_weighted_values, trainer_module.Trainer._aggregate_additional_loss

    def fails():
        with losses_of_all(Replicas(), backend_of("tensorflow"), RowFraction()):
            assert loss_module.reduce_weighted_values is not before[0]
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert (loss_module.reduce_weighted_values, trainer_module.Trainer._aggregate_additional_loss) == before
