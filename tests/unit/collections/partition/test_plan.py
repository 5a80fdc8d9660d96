"""One plan, made of the first partition or of dtypes alone, reads all partitions alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.partition.form import open_form, picks_of
from dask_train.collections.partition.plan import columns_of, make_plan, opened

FRAME = pd.DataFrame({"a": np.zeros(2, "f4"), "b": np.zeros(2, "i4"), "y": np.zeros(2, "?"), "t": ["u", "v"]})


def plan_of(data, **picked):
    return make_plan("data", open_form("data", data, picks_of("data", **picked) if picked else None))


def test_a_matrix_has_a_dtype_that_holds_all_its_columns():
    plan = plan_of(FRAME, features=["a", "b"], label="y")
    assert (plan["is_tuple"], columns_of(plan)) == (True, (("<f8", (2,)), ("|b1", ())))
    assert columns_of(plan_of(FRAME[["b", "y"]])) == (("<i4", (2,)),)
    assert columns_of(plan_of(FRAME, features="a", label="b")) == (("<f4", ()), ("<i4", ()))


def test_frames_without_rows_make_the_same_plan():
    assert plan_of(FRAME[["a", "b"]][:0]) == plan_of(FRAME[["a", "b"]])


def test_what_only_rows_tell_is_not_guessed():
    assert columns_of(plan_of(np.zeros(3))) is None
    assert columns_of(plan_of(pd.Series([[1.0], [2.0]]))) is None


def test_text_or_lists_among_numbers_are_refused():
    with pytest.raises(TypeError, match=r"Column 't' of data holds .* in one matrix with 'a', 'b', 'y'"):
        plan_of(FRAME)
    with pytest.raises(TypeError, match="lists or objects"):
        plan_of(pd.DataFrame({"a": [1.0], "v": [[1.0, 2.0]]}))


def test_a_dict_in_another_order_is_read_by_its_names():
    plan = plan_of({"x": 1, "y": 2})
    assert opened("partition 1", plan, open_form("partition 1", {"y": "of y", "x": "of x"})) == ["of x", "of y"]


@pytest.mark.parametrize("other", [{"x": 1}, {"x": 1, "z": 2}, (1, 2), 1])
def test_a_partition_put_together_otherwise_is_refused(other):
    with pytest.raises(ValueError, match=r"partition 1 is .* and the first is a dict of 'x', 'y'"):
        opened("partition 1", plan_of({"x": 1, "y": 2}), open_form("partition 1", other))
