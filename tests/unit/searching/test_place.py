"""Where a search is done: what is refused before a cluster is asked for."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_train.driver.settings import RunSettings
from dask_train.frameworks.registry import find_framework
from dask_train.searching.estimators.data import estimator_data
from dask_train.searching.place import DATA, _num_missing, checked, opened
from dask_train.searching.pool import PoolSettings


@pytest.mark.parametrize(
    ("resources", "client", "error", "told"),
    [
        ({"scorer": {"GPU": 1}}, None, ValueError, "names role 'scorer', which the run does not have"),
        (None, "tcp://10.0.0.1:8786", TypeError, r"client is 'tcp://10\.0\.0\.1:8786'; pass a distributed\.Client"),
    ],
)
def test_what_can_not_be_is_refused_at_once(resources, client, error, told):
    data = estimator_data(DATA, np.zeros((4, 2)), np.zeros(4), None, None)
    run = RunSettings(resources=resources, client=client)
    pool = PoolSettings(framework=find_framework(None))
    with pytest.raises(error, match=told), opened(checked({DATA: data}, run), run, pool):
        raise AssertionError("there is no cluster")


def test_codes_of_missing_categories_are_counted_by_column():
    assert _num_missing([0, 2], np.array([[-1.0, -2.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 2.0]])).tolist() == [2, 1]
    assert _num_missing([0], np.array([0, -1, 5], "i1")).tolist() == [1]


def test_data_without_rows_is_refused_at_once():
    rows = estimator_data(DATA, np.zeros((4, 2)), np.zeros(4), None, None)
    none = estimator_data(DATA, da.zeros((0, 2)), da.zeros(0), None, None)
    with pytest.raises(ValueError, match=r"data has no rows"):
        checked({DATA: none}, RunSettings())
    with pytest.raises(ValueError, match=r"^validation_data has no rows"):
        checked({DATA: rows, "validation_data": none}, RunSettings())
