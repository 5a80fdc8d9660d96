"""``workers=0`` grows trees in this process; ``verbose=2`` writes a line for each round."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

import dask.array as da
import lightgbm
import numpy as np
import pytest
import xgboost

import dask_train as dt

X = np.random.default_rng(0).normal(size=(300, 4))
Y = (X[:, 0] > 0).astype(int)
LAZY = da.from_array(X, chunks=(100, 4)), da.from_array(Y, chunks=100)
ESTIMATORS = pytest.mark.parametrize(
    "made",
    [lambda: xgboost.XGBClassifier(n_estimators=4), lambda: lightgbm.LGBMClassifier(n_estimators=4, verbosity=-1)],
)


@ESTIMATORS
@pytest.mark.parametrize("data", [(X, Y), LAZY])
def test_trees_are_those_of_the_estimators_own_fit(made, data):
    model = made()
    result = dt.fit(model, *data, workers=0, verbose=0)
    assert result.model is model
    np.testing.assert_array_equal(model.predict_proba(X), made().fit(X, Y).predict_proba(X))
    assert (result.ledger.trained, result.ledger.repeated) == (300, 0)


@ESTIMATORS
def test_parameters_are_those_that_were_passed(made):
    model, wanted = made().set_params(n_jobs=3), made().set_params(n_jobs=3)
    for each in (model, made()):
        before = each.get_params()
        dt.fit(each, *LAZY, workers=0, verbose=0)
        assert each.get_params() == before
    np.testing.assert_array_equal(model.predict_proba(X), wanted.fit(X, Y).predict_proba(X))


@ESTIMATORS
def test_in_this_process_nothing_is_lost_that_could_continue_from_memory(made):
    model = made()
    dt.fit(model, *LAZY, workers=0, verbose=0, recovery="in_place")
    np.testing.assert_array_equal(model.predict_proba(X), made().fit(X, Y).predict_proba(X))


@ESTIMATORS
def test_a_line_for_each_round(made, capfd):
    result = dt.fit(made(), *LAZY, workers=0, verbose=2, validation_data=(X[:50], Y[:50]), stop="round >= 3")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Round")]
    assert [line.partition(" - ")[0] for line in lines] == ["Round 1", "Round 2", "Round 3"]
    (name,) = result.history
    assert all(re.search(rf"(^Round 1| s) - {name}: 0\.\d+$", line) for line in lines)


def test_an_error_of_the_users_is_raised_as_it_is():
    def odd(*_):
        raise ZeroDivisionError("in a callback")

    with pytest.raises(ZeroDivisionError, match="in a callback"):
        dt.fit(lightgbm.LGBMClassifier(verbosity=-1), *LAZY, workers=0, verbose=0, callbacks=[odd])


def test_callbacks_of_lightgbm_keep_their_dicts():
    class Scores:
        def __init__(self):
            self.by_round = {}

        def __call__(self, env):
            self.by_round[env.iteration] = env.evaluation_result_list[0][2]

    recorded, own = {}, Scores()
    callbacks = [lightgbm.record_evaluation(recorded), own]
    model = lightgbm.LGBMClassifier(n_estimators=4, verbosity=-1)
    dt.fit(model, *LAZY, workers=0, verbose=0, validation_data=(X[:50], Y[:50]), callbacks=callbacks)
    assert recorded == model.evals_result_
    assert list(own.by_round.values()) == recorded["valid_0"]["binary_logloss"]


class Program:
    """Notes rounds by a method of its own."""

    def __init__(self, model):
        self.model, self.order, self.rounds = model, ["first"], 0

    def note(self, env):
        self.rounds = env.iteration + 1
        self.order = [*self.order, env.iteration]


@dataclass(frozen=True)
class Frozen:
    """Notes rounds in what it was passed."""

    seen: list = field(default_factory=list)

    def __call__(self, env):
        self.seen.append(env.iteration)


@dataclass(frozen=True, eq=False)
class FrozenOfXGBoost(xgboost.callback.TrainingCallback):
    """Notes rounds in what it was passed."""

    seen: list = field(default_factory=list)

    def after_iteration(self, model, epoch, evals_log):
        self.seen.append(epoch)
        return False


def test_methods_and_frozen_objects_are_callbacks():
    model = lightgbm.LGBMClassifier(n_estimators=3, verbosity=-1)
    program, frozen, of_xgboost = Program(model), Frozen(), FrozenOfXGBoost()
    dt.fit(model, *LAZY, workers=0, verbose=0, callbacks=[program.note, frozen])
    assert (program.rounds, program.order, program.model) == (3, ["first", 0, 1, 2], model)
    dt.fit(xgboost.XGBClassifier(n_estimators=3, callbacks=[of_xgboost]), *LAZY, workers=0, verbose=0)
    assert frozen.seen == of_xgboost.seen == [0, 1, 2]


def test_the_booster_of_lightgbm_ends_with_the_best_round():
    model, wanted = (
        lightgbm.LGBMClassifier(n_estimators=60, learning_rate=0.9, verbosity=-1, early_stopping_round=3) for _ in "ab"
    )
    rows, held_out = (X[:200], Y[:200]), (X[200:], Y[200:] ^ (X[200:, 1] > 0.5))
    result = dt.fit(model, *rows, workers=0, verbose=0, validation_data=held_out)
    wanted.fit(*rows, eval_X=held_out[0], eval_y=held_out[1])
    assert model.best_iteration_ == model.n_iter_ == wanted.n_iter_ == len(result.epoch) - 3
    assert model.booster_.num_trees() == wanted.booster_.num_trees()
    assert (result.best_epoch, model.best_score_) == (wanted.best_iteration_ - 1, wanted.best_score_)
    more = (
        lightgbm.LGBMClassifier(n_estimators=2, verbosity=-1).fit(*rows, init_model=each) for each in (model, wanted)
    )
    np.testing.assert_array_equal(*(each.predict_proba(X) for each in more))


@pytest.mark.parametrize("classes", [2, 3])
@ESTIMATORS
def test_the_fitted_estimator_itself_resumes_whatever_it_notes_of_the_classes(made, classes, tmp_path):
    y = Y + (classes > 2) * (X[:, 1] > 1)
    rows = {"x": X, "y": y, "workers": 0, "verbose": 0, "checkpoint": tmp_path}
    model = made()
    dt.fit(model, **rows)
    assert len(dt.fit(model.set_params(n_estimators=6), **rows, resume=True).epoch) == 6
    if isinstance(model, xgboost.XGBClassifier):
        with pytest.raises(ValueError, match=r"objective=.*binary:logistic' or .* there and .*'binary:hinge'.* here"):
            dt.fit(made().set_params(objective="binary:hinge"), **rows, resume=True)


@pytest.mark.parametrize("library", [xgboost, lightgbm], ids=["xgboost", "lightgbm"])
def test_the_best_round_of_a_fit_that_continues_a_model_counts_from_its_own_first_one(library, tmp_path):
    kind = {xgboost: xgboost.XGBClassifier, lightgbm: lightgbm.LGBMClassifier}[library]
    quiet, name = ({}, "xgb_model") if library is xgboost else ({"verbosity": -1}, "init_model")
    held_out = X[200:], Y[200:] ^ (X[200:, 1] > 0.5)
    rows = {"x": X[:200], "y": Y[:200], "validation_data": held_out, "workers": 0, "verbose": 0}
    made = partial(kind, n_estimators=60, learning_rate=0.3, early_stopping_rounds=3, **quiet)
    start = kind(n_estimators=2, learning_rate=0.1, **quiet).fit(rows["x"], rows["y"])
    rows[name] = start if library is xgboost else start.booster_
    whole = dt.fit(made(), **rows)
    (scores,) = whole.history.values()
    assert whole.best_epoch == int(np.argmin(scores)) == len(whole.epoch) - 4
    dt.fit(made(), **rows, checkpoint=tmp_path, stop="round >= 1")
    again = dt.fit(made(), **rows, checkpoint=tmp_path, resume=True)
    assert (again.best_epoch, again.epoch) == (whole.best_epoch, whole.epoch)
    rows[name] = whole.model
    assert dt.fit(kind(n_estimators=2, **quiet), **rows).best_epoch is None, "it was not looked for"


@ESTIMATORS
def test_what_needs_other_processes_is_refused(made):
    with pytest.raises(ValueError, match=r"workers=0.*streaming=True needs a run on the cluster"):
        dt.fit(made(), *LAZY, workers=0, streaming=True)
    with pytest.raises(ValueError, match=r"workers=0.*wait=False would return before"):
        dt.fit(made(), *LAZY, workers=0, wait=False)


def test_weights_and_queries_that_are_a_column_are_one_a_row():
    weights, queries = np.random.default_rng(1).integers(1, 4, (300, 1)), np.arange(300)[::-1, None] // 30
    for made in (
        lambda: xgboost.XGBClassifier(n_estimators=4),
        lambda: lightgbm.LGBMClassifier(n_estimators=4, verbosity=-1, class_weight={0: 1.0, 1: 3.0}),
    ):
        found = dt.fit(made(), *LAZY, sample_weight=weights, workers=0, verbose=0).model
        wanted = made().fit(X, Y, sample_weight=weights[:, 0])
        np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), rtol=1e-5)
    for made in (lambda: xgboost.XGBRanker(n_estimators=4), lambda: lightgbm.LGBMRanker(n_estimators=4, verbosity=-1)):
        models = [dt.fit(made(), *LAZY, qid=qid, workers=0, verbose=0).model for qid in (queries, queries[:, 0])]
        np.testing.assert_array_equal(*(model.predict(X) for model in models))
