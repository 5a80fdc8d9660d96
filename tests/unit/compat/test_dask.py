"""Private parts of Dask's collections and dispatches."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from dask.utils import Dispatch

from dask_train.compat.dask import (
    are_co_aligned,
    forget_types,
    has_meta,
    is_expression,
    meta_of,
    parameters_of,
    sample_of,
)

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture
def frame():
    return dd.from_pandas(pd.DataFrame({"x": [1.5, 2.0, 3.0], "name": ["a", "b", "c"]}), npartitions=2)


def test_collections_have_an_empty_sample_and_other_values_are_their_own(frame):
    assert all(map(has_meta, (da.ones(3), frame, frame["x"], frame.index)))
    assert meta_of(da.ones((3, 2), dtype="f4")).dtype == "f4"
    assert list(meta_of(frame).columns) == ["x", "name"]
    assert len(meta_of(frame)) == 0
    x = np.ones(3)
    assert not has_meta(x)
    assert meta_of(x) is x


def test_a_sample_has_rows(frame):
    sample = sample_of(frame)
    assert len(sample) == 2
    assert sample["x"].dtype == float


def test_frames_that_are_cut_alike(frame):
    assert are_co_aligned([frame, frame[["x"]] + 1])
    assert not are_co_aligned([frame, dd.from_pandas(pd.DataFrame({"y": range(9)}), npartitions=2)])


def test_names_of_operands(frame):
    assert is_expression(frame.expr)
    assert not is_expression(3)
    names = parameters_of(frame.expr)
    assert "npartitions" in names
    assert frame.expr.operands[names.index("npartitions")] == 2


def test_a_dispatch_forgets_a_class_and_its_subclasses():
    class Parent:
        pass

    class Child(Parent):
        pass

    dispatch = Dispatch("test")
    dispatch.register(object, lambda _: "any")
    dispatch.register(Parent, lambda _: "parent")
    assert dispatch(Child()) == "parent"  # which it remembers of the child, too
    forget_types(dispatch, Parent)
    assert dispatch(Child()) == dispatch(Parent()) == "any"
