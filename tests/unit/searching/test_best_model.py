"""The best model of a search, kept and brought back."""

from __future__ import annotations

import pickle

import numpy as np
from sklearn.linear_model import LogisticRegression

from dask_train.searching import best_model


def test_estimators_and_models_taken_apart_come_back(tmp_path):
    fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    best_model.keep(tmp_path / "estimator", fitted)
    np.testing.assert_array_equal(best_model.kept(tmp_path / "estimator").coef_, fitted.coef_)
    assert best_model.whole(fitted) is fitted
    assert pickle.loads(best_model.saved(fitted, tmp_path).read_bytes()).classes_.tolist() == [0, 1]
    best_model.keep(tmp_path / "parts", ({"a": 1}, [np.ones(2)]))
    header, arrays = best_model.kept(tmp_path / "parts")
    assert (header, arrays[0].tolist()) == ({"a": 1}, [1.0, 1.0])
