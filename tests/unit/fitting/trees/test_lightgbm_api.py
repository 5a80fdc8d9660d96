"""What a fit of LightGBM refuses before anything starts, and what the sets that it scores are called."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

import dask_train as dt
from dask_train.fitting import start as api

X, Y = np.zeros((8, 2)), np.arange(8) % 2
SETS = [(X + 1, Y), (X, Y), (X + 2, Y)]


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        (lightgbm.LGBMRanker(), {}, "LGBMRanker ranks rows within queries. Pass qid="),
        (lightgbm.LGBMClassifier(), {"qid": Y}, "qid is for rankers, and model is a LGBMClassifier"),
        (lightgbm.LGBMRegressor(), {"streaming": 0}, "streaming is 0; pass True, False, or how many partitions"),
        (lightgbm.LGBMRanker(), {"streaming": 3, "qid": Y}, "streaming with qid: a query's rows"),
        (lightgbm.LGBMRegressor(linear_tree=True), {"streaming": 3}, "streaming with linear_tree: LightGBM keeps"),
        (lightgbm.LGBMRegressor(linear_trees=True), {"streaming": 3}, "streaming with linear_tree: LightGBM keeps"),
        (lightgbm.LGBMRegressor(linear_tree=True), {"workers": 2}, "linear_tree=True with 2 workers: LightGBM makes"),
        (lightgbm.LGBMRegressor(tree_learner="feature"), {"workers": 2}, "tree_learner='feature': rows are shared"),
        (lightgbm.LGBMRegressor(), {"streaming": 3, "eval_set": [(X, Y)]}, "streaming with the rows to train on"),
        (lightgbm.LGBMRegressor(), {"eval_set": [(X, Y)], "eval_names": []}, "eval_names has 0 names"),
        (lightgbm.LGBMRegressor(), {"eval_set": SETS, "eval_names": "aba"}, "eval_names calls two sets 'a'"),
        (lightgbm.LGBMRegressor(), {"eval_set": SETS, "eval_names": ["training", "b", "c"]}, "two sets 'training'"),
    ],
)
def test_what_can_not_be(model, settings, why):
    with pytest.raises(ValueError, match=why):
        dt.fit(model, X, Y, **settings)


class Ranker(lightgbm.LGBMRanker):
    """Of the user's own."""


@pytest.mark.parametrize(
    ("names", "wanted"), [(None, ["valid_0", "training", "valid_2"]), (["a b", "mine", 7], ["a b", "training", "7"])]
)
def test_each_set_that_is_scored_has_its_own_rows_and_scores(names, wanted, monkeypatch):
    launched = {}
    monkeypatch.setattr(
        api, "launch", lambda role, _, inputs, *__, **___: launched.update(vars(inputs), task=role.task)
    )
    # What is scored has its own queries, or it would not be the same set.
    dt.fit(Ranker(), X, Y, qid=Y, eval_set=SETS, eval_qid=[Y] * 3, eval_names=names, workers=2, eval_at=[3, 5])
    evals = launched["task"].evals
    assert [each.name for each in evals] == wanted
    assert [each.prefix for each in evals] == [f"{wanted[0]}_", "", f"{wanted[2]}_"]
    assert list(launched["datasets"]) == [each.dataset for each in evals]
    assert launched["task"].settings["eval_at"] == (3, 5)
