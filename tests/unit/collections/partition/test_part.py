"""A partition becomes its columns, row by row together, or an error that names it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.partition import part

X, Y = np.arange(6.0).reshape(3, 2), np.arange(3)


def plan_of(data, **more):
    """As the first partition tells it."""
    return part(None, {"what": "data", "picks": None, **more}, 0, data)


def test_columns_in_the_order_of_the_first_partition():
    plan = plan_of({"x": X, "y": Y})
    x, y = part(list, plan, 1, {"y": Y + 10, "x": X + 10})
    np.testing.assert_array_equal(x, X + 10)
    np.testing.assert_array_equal(y, Y + 10)
    assert (plan["what"], plan["names"], plan["is_tuple"]) == ("data", ("x", "y"), False)


def test_pieces_that_are_taken_apart_are_the_columns():
    x, y = part(list, {**plan_of((X, Y)), "taken_apart": True}, 1, X, Y)
    assert x is X
    assert y is Y


def test_different_numbers_of_rows_are_refused():
    with pytest.raises(ValueError, match="partition 4 of data have 3, 2 rows"):
        part(list, plan_of((X, Y)), 4, (X, Y[:2]))


def test_rows_of_frames_that_do_not_belong_together_are_refused():
    x, y = pd.DataFrame({"x": Y}), pd.Series(Y, name="y")
    plan = {**plan_of((x, y)), "same_index": True}
    assert [len(one) for one in part(list, plan, 1, (x, y))] == [3, 3]
    with pytest.raises(ValueError, match="different indexes"):
        part(list, plan, 1, (x, y[::-1]))
