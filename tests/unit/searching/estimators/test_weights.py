"""Who takes weights of rows."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dask_train.searching.estimators.weights import check_takes_weight, last_of


def test_the_last_step_takes_weights_or_is_refused():
    nested = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression()))
    assert type(last_of(nested)) is LogisticRegression
    check_takes_weight(nested)
    for odd, name in ((KNeighborsClassifier(), "KNeighborsClassifier"), ("passthrough", "passthrough")):
        with pytest.raises(ValueError, match=f"There are sample weights, and {name} takes none"):
            check_takes_weight(make_pipeline(StandardScaler(), odd))
