"""Codes of categories become a column of 0 and 1 for each category."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dask_train.data.columns import Column
from dask_train.data.indicators import Indicators

ROWS = np.array([[0.5, 2, -1.0], [1.5, 0, 7.0]])


def test_each_category_has_its_column_in_its_columns_place():
    decoder = pickle.loads(pickle.dumps(Indicators(num_categories=(None, 3, None))))
    assert {decoder: "a key"} == {Indicators(num_categories=(None, 3, None)): "a key"}
    in_batch = Column(dtype="<f8", row_shape=(3,), decoder=decoder).in_batch
    assert in_batch == Column(dtype="<f8", row_shape=(5,))
    found = np.full((2, *decoder.row_shape), np.nan)
    decoder.opened().write(found, ROWS)
    assert found.tolist() == [[0.5, 0, 0, 1, -1.0], [1.5, 1, 0, 0, 7.0]]
    assert decoder.decoded(ROWS).tolist() == found.tolist()


@pytest.mark.parametrize("code", [-1, 3])
def test_a_code_of_no_category_is_refused(code):
    with pytest.raises(ValueError, match=f"codes from {min(code, 0)} to {max(code, 0)} of 3 categories. Leave rows of"):
        Indicators(num_categories=(3,)).decoded(np.array([[0], [code]]))
