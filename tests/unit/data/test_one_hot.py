"""Labels become a column of 0 and 1 for each class."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dask_train.data.columns import Column
from dask_train.data.one_hot import OneHot

TEXT = np.array(["b", "longer", "a", "b"])
DATES = np.array(["2020-01-02", "2020-01-01"], "M8[ns]")


@pytest.mark.parametrize(
    "labels", [TEXT, TEXT.astype(object), np.array([3, 1, 3, -2]), np.array([True, False]), np.array([0.5, 2.0]), DATES]
)
def test_each_label_has_its_column(labels):
    classes = np.unique(labels)
    decoder = pickle.loads(pickle.dumps(OneHot.of(classes)))
    assert {decoder: "a key"} == {OneHot.of(classes): "a key"}
    assert not decoder.is_random
    in_batch = Column(dtype=labels.dtype.str, row_shape=(), decoder=decoder).in_batch
    assert in_batch == Column(dtype="<f8", row_shape=(len(classes),))
    found = np.full((len(labels), *decoder.row_shape), np.nan)
    decoder.opened().write(found, labels)
    np.testing.assert_array_equal(found, labels[:, None] == classes)


@pytest.mark.parametrize("label", ["0", "a", "z"])
def test_a_label_that_is_no_class_is_refused(label):
    decoder = OneHot.of(np.array(["b", "c"]))
    with pytest.raises(ValueError, match="y has other labels now than when its classes were found"):
        decoder.opened().write(np.zeros((2, 2)), np.array(["b", label]))
