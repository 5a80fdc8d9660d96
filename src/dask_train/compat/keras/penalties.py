"""What Keras makes of an ``activity_regularizer``, which depends on its version."""

from __future__ import annotations

from functools import cache

import keras


@cache
def averages_activity() -> bool:
    """Return whether Keras divides what an ``activity_regularizer`` returns by the number of rows.

    Versions up to 3.13 add it to the loss as it is: a sum over the rows of a batch. A layer is tried with one row, and
    with the same row twice.
    """
    return _penalty(1) == _penalty(2)


def _penalty(num_rows: int) -> float:
    # With a name, later layers are called as without this one; with a dtype, Keras does not settle its policy.
    layer = keras.layers.Activation(
        "linear", activity_regularizer=keras.regularizers.L2(1.0), name="tried", dtype="float32"
    )
    layer(keras.ops.ones((num_rows, 1), "float32"))
    return sum(float(loss) for loss in layer.losses)
