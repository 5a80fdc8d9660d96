"""Private parts of XGBoost."""

from __future__ import annotations

import pytest

from dask_train.compat.xgboost import count_from, is_ranker

xgboost = pytest.importorskip("xgboost")


def test_rankers():
    assert is_ranker(xgboost.XGBRanker())
    assert not is_ranker(xgboost.XGBRegressor())


def test_callbacks_that_count_from_rounds_before(tmp_path):
    stopping, files = xgboost.callback.EarlyStopping(rounds=2), xgboost.callback.TrainingCheckPoint(tmp_path)
    for each in (stopping, files, xgboost.callback.EvaluationMonitor()):
        count_from(each, 3)
    assert (stopping.starting_round, files._start) == (3, 3)
