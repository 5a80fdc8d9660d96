"""What ranks of XGBoost tell, and what several of them can't train."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xgboost

from dask_train.fitting.trees import xgboost_ranks
from dask_train.fitting.trees.xgboost_ranks import check_together, exact, tell, unused_told


def told(params, metrics=(), rank=0, size=2):
    notices = []
    tell(params, metrics, SimpleNamespace(world_rank=rank, world_size=size, notice=notices.append))
    return [text.partition(":")[0] for text in notices]


def test_what_comes_out_otherwise_than_in_one_process_is_told_once(monkeypatch):
    params = xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=0.3).get_params()
    monkeypatch.setattr(xgboost_ranks.xgboost, "__version__", "3.2.0")
    assert told(params, ["rmse", "auc", "aucpr@3"]) == ["auc, aucpr@3", "objective='reg"]
    assert told(params, "auc", rank=1) == told(params, "auc", size=1) == []
    assert told({"lambdarank_unbiased": True}) == ["lambdarank_unbiased=True"]
    monkeypatch.setattr(xgboost_ranks.xgboost, "__version__", "3.4.1")
    assert told(params) == []


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_a_metric_sees_the_rows_of_all_ranks_also_from_one_that_has_none(shape):
    labels, scores = np.arange(3.0), np.random.default_rng(0).random(shape)
    seen = []

    def metric(y_true, y_score):
        seen.append((y_true, y_score))
        return 1.0

    def gathered(arrays):
        return [
            np.concatenate([mine, others])
            for mine, others in zip(arrays, (labels, scores, labels, [False]), strict=True)
        ]

    def largest(widths, op):
        return [max(int(mine), others) for mine, others in zip(widths, (1, scores[0].size), strict=True)]

    none = np.empty(0, np.float32)
    assert exact(metric, SimpleNamespace(all_gather=gathered, all_reduce=largest))(none, none) == 1.0
    np.testing.assert_array_equal(seen[0][0], labels)
    np.testing.assert_allclose(seen[0][1], scores)


def test_cox_needs_all_rows():
    params = xgboost.XGBRegressor(objective="survival:cox").get_params()
    check_together(params, 1)
    with pytest.raises(ValueError, match="objective='survival:cox' with 2 workers"):
        check_together(params, 2)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("rank", "told"), [(0, 1), (1, 0)])
def test_a_misspelt_parameter_is_told_of(rank, told):
    notices = []
    rows, labels = np.arange(20.0)[:, None], np.arange(20) % 2
    with unused_told(SimpleNamespace(world_rank=rank, notice=notices.append)):
        xgboost.XGBClassifier(n_estimators=1, max_deep=3).fit(rows, labels)
    assert notices == ['XGBoost does not use the parameters "max_deep": look for a misspelt name.'] * told
