"""Where a search over estimators is done: what is refused before a cluster is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.searching.estimators.data import estimator_data
from dask_train.searching.estimators.place import DATA, opened
from dask_train.training.settings import RunSettings


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
    with pytest.raises(error, match=told), opened({DATA: data}, None, run):
        raise AssertionError("there is no cluster")
