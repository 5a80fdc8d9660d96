"""Private parts of XGBoost."""

from __future__ import annotations

import pytest

from dask_train.compat.xgboost import is_ranker

xgboost = pytest.importorskip("xgboost")


def test_rankers():
    assert is_ranker(xgboost.XGBRanker())
    assert not is_ranker(xgboost.XGBRegressor())
