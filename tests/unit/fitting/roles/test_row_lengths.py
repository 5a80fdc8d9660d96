"""Rows that are padded to the longest row of all workers, as a worker that may have none of a batch sees them."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles import row_lengths
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.row_lengths import RowLengths, texts_of_one_length


@pytest.fixture
def lengths_of(monkeypatch):
    """Makes the lengths of a worker with so many rows, where another worker's rows are of length 3."""

    def make(num_rows):
        share = RowFraction()
        share.set(num_rows, 2)
        monkeypatch.setattr(
            row_lengths,
            "RowGathering",
            lambda _: lambda arrays: SimpleNamespace(arrays=[np.pad(arrays[0], [(0, 1), (0, 0)], constant_values=3)]),
        )
        return RowLengths(None, backend_of("tensorflow"), share, by_code=True)

    return make


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("num_rows", "row", "wanted"),
    [
        (1, [1.0, 2.0], [1.0, 2.0, 0.0]),
        (1, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]),
        (0, [1.0, 2.0], [1.0, 2.0, 0.0]),
        (0, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]),
    ],
)
def test_a_row_that_stands_in_for_none_is_as_long_as_those_of_others(lengths_of, compiled, num_rows, row, wanted):
    lengths = lengths_of(num_rows)

    def padded(rows):
        return lengths.padded([rows, rows > 0])

    run = tf.function(padded, input_signature=[tf.TensorSpec([None, None])]) if compiled else padded
    rows, mask = run(tf.constant([row]))
    np.testing.assert_array_equal(rows, [wanted])
    np.testing.assert_array_equal(mask, np.array([wanted]) > 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_texts_are_padded_to_the_longest_of_all_workers_but_where_they_are_ragged(lengths_of, compiled):
    texts = tf.constant([["a b"], ["b"]])

    def numbers_of(**settings):
        layer = keras.layers.TextVectorization(vocabulary=["a", "b"], **settings)
        run = tf.function(layer, input_signature=[tf.TensorSpec([None, 1], tf.string)]) if compiled else layer
        return run(texts)

    with texts_of_one_length(lengths_of(2)):
        np.testing.assert_array_equal(numbers_of(), [[2, 3, 0], [3, 0, 0]])
        assert numbers_of(ragged=True).to_list() == [[2, 3], [3]]
