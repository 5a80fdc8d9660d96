"""What XGBoost would refuse in a worker is refused before there is one."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xgboost

from dask_train.fitting.trees.xgboost_api import check_labels, check_params

CLASSIFIER = xgboost.XGBClassifier()


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"max_depth": -3}, "max_depth should be greater equal to 0"),
        ({"learning_rate": -1}, "learning_rate should be greater equal to 0"),
        ({"objective": "nonsense"}, "Unknown objective function: `nonsense`"),
        ({"eval_metric": ["logloss", "nonsense"]}, "Unknown metric function nonsense"),
        ({"grow_policy": "nonsense"}, "Invalid Input: 'nonsense'"),
    ],
)
def test_parameters_are_looked_at_by_xgboost_itself(params, why):
    with pytest.raises(xgboost.core.XGBoostError, match=why):
        check_params(xgboost.XGBClassifier(**params).get_xgb_params(), 4)


@pytest.mark.parametrize(
    "params", [{"monotone_constraints": {"b": 1}}, {"interaction_constraints": [["a", "b"], ["c"]]}]
)
def test_constraints_may_call_features_by_their_names(params):
    check_params(params, 3, ("a", "b", "c"))
    with pytest.raises(ValueError, match="not a subset of training data feature names"):
        check_params(params, 3, ("d", "e", "f"))


def test_xgboost_warns_as_before():
    check_params({"max_depth": 3}, 4)
    assert xgboost.get_config()["verbosity"] == 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"objective": "multi:softprob"},
        {"objective": lambda y, score: (score - y, y)},
        {"eval_metric": ["logloss", lambda y, score: 0.0]},
        {"device": "cuda", "verbosity": 2},
        {"no_such_parameter": 1},
        {"monotone_constraints": (1, 0, 0, -1)},
    ],
)
def test_what_xgboost_takes_is_taken_without_a_word(params, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_params(xgboost.XGBClassifier(**params).get_xgb_params(), 4)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "y", [np.array([1, 2, 1]), np.array([[1], [2]]), np.array([0, 0.5]), pd.Series([0, 2]), np.arange(3, 13)]
)
def test_labels_that_are_not_0_1_and_so_on(y):
    with pytest.raises(ValueError, match=r"The labels are .*, and XGBoost numbers classes 0, 1 and so on"):
        check_labels(CLASSIFIER, None, y, None)
    frame = pd.DataFrame({"x": 0.0, "y": np.ravel(y)})
    with pytest.raises(ValueError, match=r"The labels are "):
        check_labels(CLASSIFIER, frame, None, "y")
    with pytest.raises(ValueError, match=r"The labels are "):
        check_labels(CLASSIFIER, frame.set_axis([1, 0], axis=1), None, 0)
    check_labels(CLASSIFIER, frame, None, "z")  # is told elsewhere
    check_labels(xgboost.XGBRegressor(), None, y, None)
    check_labels(CLASSIFIER, None, da.from_array(np.asarray(y)), None)


TAKEN = (np.array([1, 0, 2.0]), np.array([True, False]), np.array([[0, 1], [1, 1]]))


@pytest.mark.parametrize("y", [*TAKEN, np.array(["a"]), np.array([np.nan])])
def test_labels_that_xgboost_takes_or_others_tell_of(y):
    check_labels(CLASSIFIER, None, y, None)
