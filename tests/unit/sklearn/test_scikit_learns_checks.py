"""scikit-learn's ``check_estimator`` of ``Incremental``, whose runs are in this process here."""

from __future__ import annotations

import warnings

import pytest
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.utils.estimator_checks import check_estimator

import dask_train as dt
from dask_train.sklearn import Incremental, incremental

OF_BATCHES = {
    "check_sample_weight_equivalence_on_dense_data": "Of stochastic descent a row of weight 2 is one step, not two.",
}


def failed(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(expected)
    return [(each["check_name"], each["exception"]) for each in results if each["status"] == "failed"]


@pytest.mark.parametrize("estimator", [SGDClassifier(random_state=0), SGDRegressor(random_state=0)], ids=str)
def test_estimators_that_learn_batch_by_batch(pool, monkeypatch, estimator):
    monkeypatch.setattr(
        incremental, "train", lambda task, roles, **settings: dt.train(task, roles={"worker": 0}, **settings)
    )
    assert failed(Incremental(estimator), OF_BATCHES) == []
