"""Parameters of LightGBM under all their names, and the scores that an estimator has in the end."""

from __future__ import annotations

import pytest

from dask_train.fitting.trees.lightgbm_params import last_scores, not_in_the_model, sums_by_row, training_params


def test_rounds_and_early_stopping_under_other_names():
    params, rounds, (stops,) = training_params(
        {"objective": "l2", "n_iter": 7, "n_iter_no_change": 3, "early_stopping_min_delta": 0.5}, 100
    )
    assert (rounds, stops.stopping_rounds, stops.min_delta, stops.first_metric_only) == (7, 3, 0.5, False)
    assert params == {
        "objective": "l2", "early_stopping_min_delta": 0.5, "deterministic": True, "force_col_wise": True,
    }  # fmt: skip
    (stops,) = training_params({"early_stopping_round": 2, "first_metric_only": True}, 5)[2]
    assert stops.first_metric_only


def test_what_is_not_asked_for():
    assert training_params({"early_stopping_round": None}, 5)[1:] == (5, [])
    assert training_params({"early_stopping_round": -1}, 5)[1:] == (5, [])
    params = training_params({"force_row_wise": True, "deterministic": False}, 5)[0]
    assert params == {"force_row_wise": True, "deterministic": False}, "LightGBM refuses both"
    with pytest.raises(ValueError, match="n_estimators is 0; a fit has 1 round or more"):
        training_params({}, 0)


@pytest.mark.parametrize(
    ("params", "by_row", "wanted"),
    [
        ({}, False, {"force_col_wise": True}),
        ({}, True, {"force_row_wise": True}),
        ({"force_col_wise": True}, True, {"force_col_wise": True}),
        ({"force_row_wise": True}, False, {"force_row_wise": True}),
        ({"force_row_wise": False}, False, {"force_row_wise": False, "force_col_wise": True}),
    ],
)
def test_histograms_are_made_as_is_asked_for_or_as_rows_say(params, by_row, wanted):
    assert training_params(params, 5, by_row=by_row)[0] == {"deterministic": True, **wanted}, (
        "never both, nor either by time"
    )


@pytest.mark.parametrize(
    ("params", "num_rows", "num_features", "by_row"),
    [
        ({}, 1_000_000, 28, True),
        ({}, 999_999, 28, False),
        ({}, 1_000_000, 200, False),
        ({"max_bins": 63}, 1_000_000, 200, True),
        ({"max_bin": 1023}, 1_000_000, 40, False),
    ],
)
def test_many_rows_of_few_features_are_summed_row_by_row(params, num_rows, num_features, by_row):
    given = dict(params)
    assert sums_by_row(given, num_rows, num_features) == by_row
    assert given == params


@pytest.mark.parametrize(("best", "score"), [(0, 3.0), (-2, 3.0), (2, 2.0)])
def test_scores_of_the_best_round_or_of_the_last(best, score):
    assert last_scores({"valid_0": {"l2": [1.0, 2.0, 3.0]}}, best) == {"valid_0": {"l2": score}}


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, []),
        ({"subsample": 0.5}, []),
        ({"subsample": 0.5, "subsample_freq": 0}, []),
        ({"subsample": 1.0, "subsample_freq": 1}, []),
        ({"colsample_bytree": 1.0, "extra_trees": False, "boosting_type": "gbdt", "objective": None}, []),
        ({"objective": lambda y, score: (score, y)}, []),
        ({"subsample": 0.5, "bagging_freq": 2}, ["subsample=0.5"]),
        ({"neg_bagging_fraction": 0.5, "subsample_freq": 2}, ["neg_bagging_fraction=0.5"]),
        (
            {"colsample_bytree": 0.5, "feature_fraction_bynode": 0.1},
            ["colsample_bytree=0.5", "feature_fraction_bynode=0.1"],
        ),
        ({"extra_tree": True, "linear_tree": True}, ["extra_tree=True", "linear_tree=True"]),
        ({"boosting_type": "dart"}, ["boosting_type='dart'"]),
        ({"boosting": "goss"}, ["boosting='goss'"]),
        ({"data_sample_strategy": "goss"}, ["data_sample_strategy='goss'"]),
        ({"objective": "xe_ndcg"}, ["objective='xe_ndcg'"]),
        ({"use_quantized_grad": True}, ["use_quantized_grad=True"]),
        ({"cegb_penalty_feature_coupled": [1.0]}, ["cegb_penalty_feature_coupled=[1.0]"]),
    ],
)
def test_what_rounds_depend_on_besides_the_model(params, wanted):
    assert not_in_the_model(params) == wanted
