"""Between two rounds: what is reported and kept, by which rank, when all stop, and which checkpoint fits."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from alone import Alone, Rows, described, origins_of

from dask_train.data.columns import Origin
from dask_train.fitting.trees.rounds import FILE, Rounds, fits_of, named
from dask_train.fitting.trees.task import EvalSet, TreesTask

PLAN = described(2, labels=None)
EVALS = (
    EvalSet(name="train", prefix="", dataset="", columns=PLAN),
    EvalSet(name="valid", prefix="val_", dataset="validation", columns=PLAN),
)
FITS = {"max_depth": "3", "rows": "1,000"}


def task(*, keeps=True, columns=PLAN, **params):
    estimator = SimpleNamespace(get_params=lambda: params)
    return TreesTask(library="xgboost", estimator=estimator, columns=columns, evals=EVALS, keeps=keeps)


def scores_of(*losses):
    return {"train": {"rmse": losses}}


@pytest.fixture
def session(tmp_path):
    """Makes a session of one rank, with the folder of its checkpoints."""
    return lambda **settings: Alone(Rows((np.zeros((1000, 2)),)), tmp_path, **settings)


def kept_in(folder):
    return pickle.loads((folder / FILE).read_bytes())


def test_scores_are_named_by_their_rows_and_in_words():
    scores = {"train": {"error@0.7": [1, 2]}, "valid": {"rmse": np.array([3.0, 4.0], "f4")}}
    assert named(scores, EVALS) == {"error_0_7": [1.0, 2.0], "val_rmse": [3.0, 4.0]}


def test_the_last_value_of_each_score_is_reported_with_its_round(session):
    made = session()
    rounds = Rounds(made, task(keeps=False), FITS)
    rounds.past(scores_of(0.9), dict)
    rounds.past(scores_of(0.9, 0.5), dict)
    assert made.scores == [{"round": 1, "rmse": 0.9}, {"round": 2, "rmse": 0.5}]
    assert rounds.history == {"rmse": [0.9, 0.5]}


def test_the_other_ranks_report_and_keep_nothing(session, tmp_path):
    made = session()
    made.world_rank = 1
    rounds = Rounds(made, task(), FITS)
    rounds.past(scores_of(0.9), dict)
    rounds.end(dict, ended=True)
    assert (made.scores, made.saved, rounds.history) == ([], [], {"rmse": [0.9]})


def test_rounds_are_kept_when_they_are_due(session, tmp_path):
    made = session(every=2)
    rounds = Rounds(made, task(), FITS)
    for number in range(1, 4):
        rounds.past(scores_of(0.9), lambda number=number: f"after {number}")
    assert made.saved == [2]
    kept = kept_in(tmp_path)
    assert (kept.num_rounds, kept.state, kept.ended, kept.fits) == (2, "after 2", False, FITS)


@pytest.mark.parametrize(("every", "keeps"), [(2, True), (1, False)], ids=["not due", "no checkpoints"])
def test_the_state_is_not_asked_for_where_nothing_is_kept(session, every, keeps):
    def state():
        raise AssertionError("it may be large")

    made = session(every=every)
    Rounds(made, task(keeps=keeps), FITS).past(scores_of(0.9), state)
    assert made.saved == []


@pytest.mark.parametrize(("any_rank", "stops"), [(0, False), (1, True)])
def test_all_stop_where_one_rank_is_to(session, any_rank, stops):
    made, asked = session(), []

    def all_reduce(value, op):
        asked.append((int(value), op))
        return np.maximum(value, any_rank)

    made.all_reduce = all_reduce
    assert Rounds(made, task(), FITS).past(scores_of(0.9), dict) is stops
    assert asked == [(0, "max")], "this rank has no reason of its own"


@pytest.mark.parametrize(
    ("every", "ended", "saved"),
    [(2, False, [2, 3]), (3, False, [3]), (3, True, [3, 3])],
    ids=["rounds since", "all is kept", "the loop has ended by itself"],
)
def test_the_end_is_kept_where_it_tells_more_than_the_last_checkpoint(session, tmp_path, every, ended, saved):
    made = session(every=every)
    rounds = Rounds(made, task(), FITS)
    for _ in range(3):
        rounds.past(scores_of(0.9), dict)
    rounds.end(dict, ended=ended)
    assert made.saved == saved
    assert kept_in(tmp_path).ended is ended


def test_the_next_fit_goes_on_where_the_last_one_was_kept_and_keeps_nothing_twice(session):
    first = Rounds(session(), task(), FITS)
    first.past(scores_of(0.9), lambda: "a booster")
    made = session()
    second = Rounds(made, task(), FITS)
    assert (second.load().state, second.num_rounds) == ("a booster", 1)
    second.end(dict, ended=False)
    assert made.saved == []


def test_without_a_checkpoint_it_begins_at_the_first_round(session):
    rounds = Rounds(session(), task(), FITS)
    assert (rounds.load(), rounds.num_rounds) == (None, 0)


def test_checkpoints_are_not_looked_for_where_none_are_kept(session):
    Rounds(session(), task(), FITS).past(scores_of(0.9), dict)
    assert Rounds(session(), task(keeps=False), FITS).load() is None


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({**FITS, "max_depth": "4"}, "max_depth='3' there and '4' here"),
        ({"rows": "1,000"}, "max_depth='3' there and None here"),
        ({**FITS, "gamma": "1"}, "gamma=None there and '1' here"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_with_what_differs(session, now, told):
    Rounds(session(), task(), FITS).past(scores_of(0.9), dict)
    with pytest.raises(ValueError, match=f"is of another fit: {told}. Go on"):
        Rounds(session(), task(), now).load()


def test_a_fit_is_known_by_its_data_and_by_parameters_that_are_not_free(session):
    given = task(max_depth=3, n_estimators=100, objective=lambda y, margin: (y, margin))
    found = fits_of(given, session(), free={"n_estimators"})
    assert found == {"max_depth": "3", "rows": "1,000", "features": "2"}


def test_features_are_known_by_their_names_where_they_have_some(session):
    plan = described(2, origins=origins_of(pd.DataFrame({"a": [1], "b": [2]})))
    assert fits_of(task(columns=plan), session(), free=set())["features"] == "('a', 'b')"


def test_few_categories_are_told_and_of_many_a_difference_at_the_end_is_noticed(session):
    def categories(*known):
        origins = [Origin(name="a", dtype=each and pd.CategoricalDtype(each)) for each in known]
        plan = described(2, origins=origins)
        return fits_of(task(columns=plan), session(), free=set())["categories"]

    assert categories(None, ("x", "y")) == "[None, ['x', 'y']]"
    one, other = (categories(range(1000), (last,)) for last in "ab")
    assert one != other
    assert max(len(one), len(other)) < 120
