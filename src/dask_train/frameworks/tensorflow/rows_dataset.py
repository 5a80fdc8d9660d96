"""Rows in shared memory as a ``tf.data.Dataset``: gathered by TensorFlow itself, no Python between a row and a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.frameworks.tensorflow.adapter import TensorFlowFramework
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise

if TYPE_CHECKING:
    import tensorflow as tf

    from dask_train.data.columns import Column
    from dask_train.data.part import Part
    from dask_train.data.selection import Field

# Single rows are gathered this many bytes, and at most this many rows, at a time: 60,000 rows of 3 kB, batched again by
# 64, take 0.35 ms a batch like this, and 2.1 ms where each is gathered alone (2 cores).
_GATHER_BYTES, _GATHER_ROWS = 1 << 20, 1024


def rows_dataset(
    part: Part, *, batch_size: int | None, shuffle_seed: int | None, is_shard: bool = False
) -> tf.data.Dataset:
    """Batches, or rows where ``batch_size`` is None; in a new order each time where there is a seed.

    Parameters
    ----------
    part
        A :class:`dask_train.data.part.Part`.
    batch_size
        Rows of a batch.
    shuffle_seed
        Fixes the orders.
    is_shard
        Whether others have the other rows: a distribution strategy is not to divide it again then.

    Returns
    -------
    tensorflow.data.Dataset
        Of known cardinality.

    Raises
    ------
    DataError
        TensorFlow has no such dtype.

    Notes
    -----
    ``tf.data`` rewrites a data set's graph when it is iterated, and copies the tensors in it when it does (2.21: 1.3 GB
    of rows were 1.3 GB more); so its default rewrites are off here and in all that is made of it.
    ``experimental_distribute_dataset`` rewrites too, unless it is not to divide the rows.

    An order is a keyed permutation, reckoned for each row alone (``tf.random.experimental.index_shuffle``; Simon and
    Speck ciphers, https://eprint.iacr.org/2013/404), so no buffer of rows or numbers is kept.
    """
    with without_startup_noise():
        import tensorflow as tf

    num_rows = len(part)
    size = batch_size or max(1, min(_GATHER_ROWS, _GATHER_BYTES // max(1, part.row_bytes)))
    numbers = tf.data.Dataset.range(num_rows).batch(size)
    gather = _Gather(part)
    if shuffle_seed is None:
        batches = numbers.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        last = tf.constant(num_rows - 1, tf.int64)

        def one_pass(key: Any) -> tf.data.Dataset:
            return numbers.map(
                lambda each: gather(tf.random.experimental.index_shuffle(each, [key, 0], last)),
                num_parallel_calls=tf.data.AUTOTUNE,
            )

        # Each pass over a data set draws one key.
        keys = tf.data.Dataset.random(seed=shuffle_seed, rerandomize_each_iteration=True).take(1)
        batches = keys.flat_map(one_pass).apply(tf.data.experimental.assert_cardinality(-(-num_rows // size)))
    if batch_size is None:
        batches = batches.unbatch().apply(tf.data.experimental.assert_cardinality(num_rows))
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    if is_shard:
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.with_options(options)


class _Gather:
    """Makes a batch of the numbers of its rows; traced into the data set's graph."""

    def __init__(self, part: Part) -> None:
        import tensorflow as tf

        self._part, self._tf = part, tf
        used = sorted({column for field in part.selection.fields for column in field.columns})
        # Others, such as text and sparse rows, are copied here, and then numbered as the part is.
        shared = [column for column in used if _can_be_shared(part.kinds[column])]
        arrays = tuple(part.columns[column] if column in shared else part.column(column) for column in used)
        self._tensors = dict(zip(used, TensorFlowFramework().to_batch(arrays), strict=True))
        self._shifts = {column: tf.constant(part.shifts[column]) for column in shared if len(part)}
        self._bounds = tf.constant(part.bounds[1:-1])

    def __call__(self, numbers: Any) -> Any:
        tf, fields = self._tf, self._part.selection.fields
        stretch = tf.searchsorted(self._bounds, numbers, side="right") if len(self._part.bounds) > 2 else 0
        return self._part.shaped([self._field(field, numbers, stretch) for field in fields])

    def _field(self, field: Field, numbers: Any, stretch: Any) -> Any:
        columns = []
        for column in field.columns:
            shifts = self._shifts.get(column)
            there = numbers if shifts is None else numbers + self._tf.gather(shifts, stretch)
            columns.append(self._tf.gather(self._tensors[column], there))
        if not field.is_matrix:
            return columns[0]
        return self._tf.stack([self._tf.cast(each, np.dtype(field.dtype)) for each in columns], axis=1)


def _can_be_shared(column: Column) -> bool:
    """Return whether rows lie in memory as they are given, and TensorFlow has numbers of their dtype.

    What it has not would be copied with all that lies between rows.
    """
    dtype = np.dtype(column.dtype)
    return (
        column.layout is None
        and dtype.isnative
        and dtype.kind in "biufc"
        and dtype.itemsize <= (16 if dtype.kind == "c" else 8)
    )
