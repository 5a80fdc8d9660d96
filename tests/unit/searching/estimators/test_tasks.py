"""What may be fitted for a trial."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression

from dask_train.searching.estimators.tasks import EstimatorTasks


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ((LogisticRegression(), {"epochs": 1}), "tuple, .*'epochs': 1.*it is an estimator and"),
        (3, "build returned a int"),
    ],
)
def test_what_is_no_estimator_is_refused(made, told):
    tasks = EstimatorTasks(build=lambda _: made, scoring=None, folds=None, has_weights=False, weighs_scores=False)
    with pytest.raises(TypeError, match=told):
        tasks.task(None)
