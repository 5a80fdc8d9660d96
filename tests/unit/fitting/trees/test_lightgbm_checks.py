"""Metrics that LightGBM has not are refused; its own are taken under all their names."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

import dask_train as dt
from dask_train.fitting.trees.lightgbm_api import check_metrics


@pytest.mark.parametrize(
    "metric",
    [
        None,
        "auc",
        ["l1", "rmse", lambda y, found: ("own", 0.0, False)],
        "multi_logloss",
        "auc_mu",
        "gamma",
        ("ndcg", "map"),
        "mse, MAE",
        "None",
        "custom",
        "cross_entropy_lambda",
    ],
)
def test_metrics_of_lightgbm(metric):
    check_metrics({"metric": metric}, metric)


@pytest.mark.parametrize(
    ("params", "metric", "why"),
    [
        (
            {},
            "logloss",
            "eval_metric names 'logloss', which is no metric of LightGBM: it would be left out of the scores",
        ),
        ({}, ["auc", "AUCC"], "eval_metric names 'AUCC'"),
        ({"metric": "l1,l3"}, None, "^metric names 'l3'"),
        ({"metrics": {"nothing"}}, "auc", "^metrics names 'nothing'"),
        ({}, "ndcg@3", "Ranks such as 'ndcg@3' are set with eval_at="),
    ],
)
def test_metrics_that_it_has_not(params, metric, why):
    with pytest.raises(ValueError, match=why):
        check_metrics(params, metric)


def test_fit_refuses_them_before_anything_starts():
    x, y = np.zeros((8, 2)), np.arange(8) % 2
    with pytest.raises(ValueError, match="eval_metric names 'logloss'"):
        dt.fit(lightgbm.LGBMClassifier(), x, y, eval_metric="logloss", validation_data=(x, y))
