"""What roles are told that fit boosted trees."""

from __future__ import annotations

import numpy as np
from alone import PLAIN

from dask_train.fitting.trees.task import EvalSet, TreesTask


def test_scores_of_the_last_round_are_named_by_their_rows_and_in_words():
    own = EvalSet(name="train", prefix="", dataset="", columns=PLAIN)
    other = EvalSet(name="valid", prefix="val_", dataset="validation", columns=PLAIN)
    task = TreesTask(library="xgboost", estimator=None, columns=PLAIN, evals=(own, other))
    scores = {"train": {"error@0.7": [1, 2]}, "valid": {"rmse": np.array([3.0, 4.0], "f4")}}
    found = task.last_scores(scores)
    assert found == {"error_0_7": 2.0, "val_rmse": 4.0}
    assert {type(value) for value in found.values()} == {float}
    assert task.last_scores({}) == {}
