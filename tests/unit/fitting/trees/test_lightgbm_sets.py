"""Data sets of LightGBM that are made of parts, by one rank and by several."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import lightgbm
import numpy as np
import pytest
from alone import LABELS, PLAIN, RANDOM, SIGNAL, Alone, Rows, X, cut, grow, scored, together
from sklearn.utils.class_weight import compute_sample_weight

from dask_train.fitting.trees.lightgbm_sets import DataSets, decoded
from dask_train.fitting.trees.parts import as_parts, classes_of
from dask_train.fitting.trees.task import EvalSet, TreesTask


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, bool])
def test_features_of_lightgbm_are_numbers_of_any_kind(dtype):
    x = RANDOM.integers(0, 5, (600, 3)).astype(dtype)
    settings = {"n_estimators": 3, "num_leaves": 7, "verbose": -1}
    found = grow(Alone(cut(x, SIGNAL)), lightgbm.LGBMRegressor(**settings), PLAIN).estimator
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True).fit(x, SIGNAL)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-6)


def test_linear_trees_are_those_of_rows_in_one_piece():
    x = RANDOM.normal(size=(600, 3))
    signal = x[:, 1] * 2 + np.abs(x[:, 0])
    settings = {"n_estimators": 5, "num_leaves": 15, "verbose": -1, "linear_tree": True}
    rows, evals = cut(x, signal), (scored("valid_0", PLAIN),)
    found = grow(Alone(rows, valid_0=rows), lightgbm.LGBMRegressor(**settings), PLAIN, evals=evals)
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True).fit(x, signal)
    np.testing.assert_allclose(found.estimator.predict(x), wanted.predict(x))
    error = np.mean((wanted.predict(x) - signal) ** 2)
    np.testing.assert_allclose(found.estimator.evals_result_["valid_0"]["l2"][-1], error)


def test_a_validation_set_of_lightgbm_without_weights_weighs_all_rows_alike():
    settings = {"n_estimators": 3, "num_leaves": 7, "verbose": -1, "class_weight": {0: 1.0, 1: 2.0, 2: 5.0}}
    rows = cut(X[:, :3], LABELS)
    own = EvalSet(name="training", prefix="", dataset="training", columns=PLAIN)
    evals = (scored("valid_0", PLAIN), own)
    found = grow(Alone(rows, valid_0=rows, training=rows), lightgbm.LGBMClassifier(**settings), PLAIN, evals=evals)
    wanted = lightgbm.LGBMClassifier(**settings, force_col_wise=True)
    x = X[:, :3]  # what it knows as the training set has the training set's weights
    with pytest.warns(lightgbm.basic.LGBMDeprecationWarning):
        wanted.fit(x, LABELS, eval_set=[(x.copy(), LABELS.copy()), (x, LABELS)])
    ours, theirs = found.estimator.evals_result_, wanted.evals_result_
    assert set(ours) == set(theirs) == {"valid_0", "training"}
    for name, metrics in ours.items():
        np.testing.assert_allclose(metrics["multi_logloss"], theirs[name]["multi_logloss"], rtol=1e-6)


def made_by(session, estimator, evals=()):
    """The data sets of one rank of a classifier or regressor, with the weights of each row."""
    plan, parts = PLAIN, as_parts(session.partitions(), PLAIN)
    classes = classes_of(session, parts) if isinstance(estimator, lightgbm.LGBMClassifier) else None
    task = TreesTask(library="lightgbm", estimator=estimator, columns=plan, evals=evals)
    sets = DataSets(session, task, parts, classes)
    params = {"objective": "none", "verbose": -1, "num_threads": 1}
    return [sets.train(params), *(sets.evaluated(number, params) for number in range(len(evals)))]


def test_ranks_weigh_classes_alike_and_the_first_one_alone_those_of_rows_that_are_scored(in_threads):
    x = X[:, :3]
    rows = [Rows((x[:100], LABELS[:100])), Rows((x[100:150], LABELS[100:150]), (x[150:], LABELS[150:]))]
    whole = cut(x, LABELS)
    own = EvalSet(name="training", prefix="", dataset="training", columns=PLAIN)
    other = EvalSet(name="valid_1", prefix="val_", dataset="valid_1", columns=PLAIN)
    named = EvalSet(name="training", prefix="val_", dataset="valid_1", columns=PLAIN)
    sessions = together(rows, training=whole, valid_1=whole)
    made = lightgbm.LGBMClassifier(class_weight="balanced")
    first, second = in_threads(*(partial(made_by, each, made, (own, other, named)) for each in sessions))
    wanted = compute_sample_weight("balanced", LABELS).astype(np.float32)
    np.testing.assert_allclose(first[0].get_weight(), wanted[:100])
    np.testing.assert_allclose(second[0].get_weight(), wanted[100:])
    np.testing.assert_allclose(first[1].get_weight(), wanted)
    assert first[2].get_weight() is first[3].get_weight() is None, "whatever they are called"
    assert second[1:] == [None] * 3


@pytest.mark.parametrize("size", [50, 10_000])
def test_bins_are_those_of_one_process_however_rows_lie(in_threads, size):
    made = lightgbm.LGBMRegressor(subsample_for_bin=size)
    x = X[:, :3]
    (alone,) = made_by(Alone(cut(x, SIGNAL)), made)
    bounds = (0, 7, 7, 450, 600)  # one rank has a part without rows
    parts = [(x[a:b], SIGNAL[a:b]) for a, b in pairwise(bounds)]
    ranks = in_threads(*(partial(made_by, each, made) for each in together([Rows(*parts[:3]), Rows(parts[3])])))
    bins = [[each.feature_num_bin(number) for number in range(3)] for (each,) in ((alone,), *ranks)]
    assert bins[0] == bins[1] == bins[2]
    assert [each.num_data() for (each,) in ranks] == [450, 150]


def test_what_is_scored_has_one_target_a_row_of_a_label_that_was_learnt():
    rows, odd = cut(X[:, :3], LABELS), cut(X[:, :3], LABELS + 1)
    evals = (scored("valid_0", PLAIN),)
    with pytest.raises(ValueError, match="A validation set has labels that the data to train on has not"):
        made_by(Alone(rows, valid_0=odd), lightgbm.LGBMClassifier(), evals)
    column = cut(X[:, :3], SIGNAL[:, None])
    trained, validated = made_by(Alone(column, valid_0=column), lightgbm.LGBMRegressor(), evals)
    np.testing.assert_allclose(validated.get_label(), trained.get_label())


def test_a_missing_category_is_no_number_and_rows_stay_where_they_are_if_they_can():
    codes = np.array([[0, -1], [2, 1]], np.int8)
    np.testing.assert_array_equal(decoded(codes, [1]), [[0, np.nan], [2, 1]])
    np.testing.assert_array_equal(decoded(codes[0], [1]), [0, np.nan])
    assert codes.tolist() == [[0, -1], [2, 1]]
    assert decoded(X, []) is X
    swapped = decoded(X.astype(">f8"), [])
    assert swapped.dtype == np.float64, "LightGBM reads the bytes of this machine"
    np.testing.assert_array_equal(swapped, X)
