"""Private parts of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.compat.sklearn import check_sample_weight, output_of_transform, scorer_takes_weights

pytest.importorskip("sklearn")


def test_weights_of_rows():
    x = np.ones((3, 2))
    assert check_sample_weight([1, 2, 3], x, dtype=np.float64).tolist() == [1.0, 2.0, 3.0]
    assert check_sample_weight(None, x).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="sample_weight"):
        check_sample_weight([1, 2], x)


def test_scorers_that_take_weights():
    from sklearn.metrics import get_scorer, make_scorer, max_error

    assert scorer_takes_weights(get_scorer("r2")) is True
    assert scorer_takes_weights(make_scorer(max_error)) is False
    assert scorer_takes_weights(len) is None


def test_what_transform_is_to_return():
    from sklearn import config_context
    from sklearn.preprocessing import StandardScaler

    assert output_of_transform(StandardScaler()) == "default"
    assert output_of_transform(StandardScaler().set_output(transform="pandas")) == "pandas"
    with config_context(transform_output="polars"):
        assert output_of_transform(StandardScaler()) == "polars"
