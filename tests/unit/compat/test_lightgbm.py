"""Private parts of LightGBM."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.compat import lightgbm as compat

lightgbm = pytest.importorskip("lightgbm")

QUIET = {"verbosity": -1, "min_data_in_leaf": 1, "min_data_in_bin": 1}
X, Y = np.arange(20.0).reshape(20, 1), np.arange(20.0)


def rows(**settings):
    return lightgbm.Dataset(X, Y, params=QUIET, free_raw_data=False, **settings)


def test_names_of_a_parameter():
    assert {"num_iterations", "n_estimators", "num_boost_round"} <= compat.names_of_parameter("num_iterations")


def test_a_booster_that_goes_on_from_another():
    first = lightgbm.train(QUIET, rows(), 2)
    train, other, predictor = rows(), rows(), compat.predictor_of(first)
    for each in (train, other):
        compat.continue_from(each, predictor)
    booster = lightgbm.Booster(QUIET, train)
    booster.add_valid(other, "other")
    with pytest.raises(lightgbm.basic.LightGBMError, match="predictor"):
        booster.add_valid(rows(), "another")


def test_names_of_features_that_a_stand_in_takes_over():
    named, stand_in = rows(feature_name=["height"]).construct(), rows().construct()
    compat.take_over_names(stand_in, named)
    booster = lightgbm.Booster(QUIET, stand_in)
    assert stand_in._has_non_default_feature_names is named._has_non_default_feature_names is True
    assert booster.num_feature() == 1


def test_weights_of_classes_that_are_forgotten():
    model = lightgbm.LGBMClassifier(n_estimators=1, class_weight="balanced", **QUIET)
    model.fit(X, Y > 4)
    assert model._class_weight == "balanced"
    compat.forget_class_weight(model)
    assert model._class_weight is None


def test_an_estimator_has_other_threads_meanwhile():
    model = lightgbm.LGBMRegressor(n_jobs=5, **QUIET)
    before = model.get_params()
    with compat.with_threads(model, 2):
        assert model.get_params()["n_jobs"] == 2
    assert model.get_params() == before
    assert "n_jobs" not in model._other_params


def test_a_network_that_there_is_not_is_freed_as_well():
    compat.free_network()


def test_early_stopping_that_continues_compares_as_it_was_passed():
    def at(number, value, begin, name="l2"):
        scores = [lightgbm.basic.EvalResult("valid_0", name, value, maximize=False)]
        return lightgbm.callback.CallbackEnv(None, {}, number, begin, 9, scores)

    for name, best in (("l2", [1]), ("l1", [])):
        stopping = lightgbm.early_stopping(3, min_delta=0.5, verbose=False)
        vars(stopping).update(best_score=[1.0], best_iter=[1], best_score_list=[at(1, 1.0, 0).evaluation_result_list])
        compat.continue_stopping(stopping, at(2, 0.9, 0, name))
        assert len(stopping.best_score_list) == len(best)
        assert stopping.best_iter == (best or [0])
        stopping(at(2, 0.9, 0, name))
        assert stopping.best_iter == (best or [2])
    compat.continue_stopping(other := lightgbm.log_evaluation(), at(2, 0.9, 0))
    assert vars(other) == vars(lightgbm.log_evaluation())
