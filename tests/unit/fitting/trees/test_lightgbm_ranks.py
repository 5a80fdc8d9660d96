"""What LightGBM's ranks begin with, and the parameters they may have."""

from __future__ import annotations

from types import SimpleNamespace

import lightgbm
import numpy as np
import pytest

from dask_train.fitting.trees.lightgbm_ranks import add_to_first_tree, first_score, parallel

RANDOM = np.random.default_rng(0)
X, Y, WEIGHTS = RANDOM.normal(size=(300, 2)), RANDOM.random(300), RANDOM.integers(1, 4, 300)
HERE, OTHER = slice(0, 50), slice(50, 300)


def of_two(rank=0):
    """A session of the first of two ranks; the other one's rows are added by what reduces."""
    told = []
    return SimpleNamespace(
        world_size=2,
        world_rank=rank,
        network={"num_machines": 2, "tree_learner": "data"},
        notice=told.append,
        told=told,
        all_reduce=lambda sums: sums + of_others,
    )


of_others = np.array([Y[OTHER].astype(np.float32) @ WEIGHTS[OTHER], WEIGHTS[OTHER].sum()], np.float64)


@pytest.mark.parametrize("objective", ["rmse", "huber", "fair", "poisson", "tweedie", "xentropy", "xentlambda"])
def test_all_rows_begin_with_what_lightgbm_begins_with_in_one_process(objective):
    settings = {"objective": objective, "verbose": -1, "learning_rate": 1e-9}
    wanted = lightgbm.train(settings, lightgbm.Dataset(X, Y, weight=WEIGHTS), 1).predict(X[:1], raw_score=True)
    found = first_score(settings, Y[HERE], WEIGHTS[HERE], of_two())
    np.testing.assert_allclose(found, wanted[0], rtol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "binary"},
        {"objective": "none"},
        {"objective": "l2", "boost_from_average": False},
        {"objective": "l2", "boosting_type": "rf"},
    ],
)
def test_what_lightgbm_finds_by_itself_is_left_to_it(settings):
    assert first_score(settings, Y[HERE], None, of_two()) == 0.0


def test_the_first_tree_holds_what_rows_began_with():
    rows = lightgbm.Dataset(X, Y)
    booster = lightgbm.train({"verbose": -1, "boost_from_average": False}, rows, 2)
    before = booster.predict(X)
    add_to_first_tree(booster, 3.5)
    np.testing.assert_allclose(booster.predict(X), before + 3.5)
    np.testing.assert_allclose(lightgbm.Booster(model_str=booster.model_to_string()).predict(X), before + 3.5)


def test_parameters_of_ranks():
    plain = {"objective": "l2", "min_child_samples": 0}
    assert parallel(plain, of_two()) == {**plain, "min_child_samples": 1, "num_machines": 2, "tree_learner": "data"}
    assert parallel({"objective": "l2", "tree_learner": "voting"}, of_two())["tree_learner"] == "voting"
    assert parallel({"objective": "l2", "tree_learner": "serial"}, of_two())["tree_learner"] == "data"
    assert parallel(plain, SimpleNamespace(world_size=1)) == plain
    with pytest.raises(ValueError, match="linear_tree=True with 2 workers"):
        parallel({"objective": "l2", "linear_tree": True}, of_two())
    with pytest.raises(ValueError, match="tree_learner='feature'"):
        parallel({"objective": "l2", "tree_learner": "feature"}, of_two())
    session = of_two()
    parallel({"objective": "quantile", "monotone_constraints_method": "advanced"}, session)
    assert [text.partition(":")[0] for text in session.told] == [
        "objective='quantile'",
        "monotone_constraints_method='advanced'",
    ]
