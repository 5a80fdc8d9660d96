"""A grid that is kept goes on where it was, and is told to places of a log; without a cluster."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import optuna
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError, PlacementError
from dask_train.searching import best_model
from dask_train.searching.estimators.folds import Folds
from dask_train.searching.estimators.grid import GridState, GridStudy
from dask_train.searching.estimators.prefixes import FoldScore
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.rows import RowTable
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.tasks import EstimatorTasks
from dask_train.searching.estimators.units import Refit
from dask_train.searching.going_on import SearchState, check_goes_on
from dask_train.searching.kept import kept_search
from dask_train.searching.opening import open_study
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.pool import trained
from dask_train.searching.result import SearchResult
from dask_train.searching.texts import text_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 5))
Y = (X[:, 0] + RANDOM.normal(size=120) > 0).astype(int)


class Rows:
    """Rows by their numbers, as role processes have them."""

    def __len__(self):
        return len(X)

    def take(self, numbers):
        return [column[numbers] for column in (X, Y)]

    @contextmanager
    def lent(self, first, num_rows):
        yield None


PIPE = make_pipeline(StandardScaler(), LogisticRegression())
PARAMS = {"standardscaler__with_mean": [True, False], "logisticregression__C": [0.1, 1.0, -1.0]}
ASKED = {"params": text_of(PARAMS)}
TABLES = {"data": RowTable(Rows(), Columns.of_batch(2))}


class Log:
    """A search's log that keeps what it is told."""

    def __init__(self):
        self.begun: dict[int, Any] = {}
        self.written: list[Any] = []
        self.ended: dict[int, Any] = {}

    def begin(self, number, params):
        assert number not in self.begun
        self.begun[number] = params

    def write(self, number, scores):
        assert number in self.begun
        self.written.append((number, scores["step"], scores["score"]))

    def trial_ended(self, number, state, *, params, value, why):
        self.ended[number] = state, value, why


def grid(kept, log=None):
    scoring = Scoring(scorers={"score": check_scoring(PIPE)}, of_last_step=True)
    splits = Folds(3, len(X), X.shape[1:], Y).of(PIPE)
    return GridStudy(PIPE, list(ParameterGrid(PARAMS)), splits, scoring, "score", kept=kept, log=log)


def done(work, most=100):
    """How many units were gone through; at most so many."""
    count = 0
    while count < most and (handed := work.next()) is not None:
        work.done(handed, handed.request.work(handed.request, None, TABLES))
        count += 1
    return count


def test_a_grid_goes_on_with_what_has_no_scores(tmp_path):
    whole = grid(None)
    assert done(whole) == 7, "two first steps on three folds, and all rows"
    policy = Checkpoint(tmp_path / "kept", every_steps=1)
    with kept_search(policy, ASKED, GridState, resume=False) as kept:
        work = grid(kept)
        assert done(work, 4) == 4
        assert work.next() is not None, "in hand when the client dies"
    log = Log()
    with kept_search(policy, ASKED, GridState, resume=True) as kept:
        work = grid(kept, log)
        ended_before = {each.number for each in work.ended}
        assert len(ended_before) == 2
        assert done(work) == 7, "two folds and all rows, and what failed on four folds"
        work.end()
    assert set(log.begun) == set(log.ended) == set(range(6)) - ended_before
    assert [state for state, *_ in log.ended.values()].count("FAIL") == 2, "a C below 0"
    for number, fold, score in log.written:
        assert score == whole.table[f"split{fold}_test_score"][number]
    assert all(value == whole.table["mean_test_score"][number] for number, (_, value, _) in log.ended.items() if value)
    assert work.best[:2] == (whole.best_index, whole.table["mean_test_score"][whole.best_index])
    with kept_search(policy, ASKED, GridState, resume=True) as kept:
        again = grid(kept)
        assert done(again) == 6, "what failed, and the best one is there"
    for found in (work, again):
        assert found.best_index == whole.best_index
        assert found.num_fits > whole.num_fits, "each attempt counts"
        assert [each.number for each in sorted(found.ended, key=lambda each: each.number)] == list(range(6))
        for name, column in whole.table.items():
            if "time" not in name and "param" not in name:
                np.testing.assert_array_equal(found.table[name], column, err_msg=name)
        np.testing.assert_array_equal(found.best[2].predict_proba(X), whole.best[2].predict_proba(X))


def test_fits_that_failed_are_tried_again_and_another_candidate_may_be_the_best(tmp_path):
    policy = Checkpoint(tmp_path / "kept", every_steps=1)
    whole = grid(None)
    done(whole)
    with kept_search(policy, ASKED, GridState, resume=False) as kept:
        work = grid(kept)
        while (handed := work.next()) is not None:
            outcome = handed.request.work(handed.request, None, TABLES)
            if not isinstance(handed.request.work, Refit):
                scores, num_fits = outcome.parts
                spoilt = [
                    FoldScore(candidate=each.candidate, error="OSError: the disk is full")
                    if each.candidate == whole.best_index
                    else each
                    for each in scores
                ]
                outcome = replace(outcome, parts=(spoilt, num_fits))
            work.done(handed, outcome)
        work.end()
    assert work.best[0] != whole.best_index
    with kept_search(policy, ASKED, GridState, resume=True) as kept:
        again = grid(kept)
        done(again)
    assert again.best[:2] == whole.best[:2]
    np.testing.assert_array_equal(again.best[2].predict_proba(X), whole.best[2].predict_proba(X))


def test_another_grid_is_refused_and_so_are_other_folds(tmp_path):
    policy = Checkpoint(tmp_path / "kept")

    def folds(cv):
        return {"cv": Folds(cv, len(X), X.shape[1:], Y).text()}

    with kept_search(policy, ASKED, GridState, resume=False) as kept:
        kept.check_same(folds(KFold(3, shuffle=True)))
        work = grid(kept)
        done(work, 1)
        work.end()
    with (
        pytest.raises(CheckpointError, match=r"params was .*standardscaler__with_mean.*, and is .*'C': \[1\]"),
        kept_search(policy, {"params": text_of({"C": [1]})}, GridState, resume=True),
    ):
        pass
    with (
        kept_search(policy, ASKED, GridState, resume=True) as kept,
        pytest.raises(CheckpointError, match=r"cv was 'KFold.* of rows .*, and is 'KFold"),
    ):
        kept.check_same(folds(KFold(3, shuffle=True)))  # drawn anew
    with (
        pytest.raises(CheckpointError, match=r"is none of dt\.search"),
        kept_search(policy, {"metric": "score", "direction": "maximize"}, SearchState, resume=True),
    ):
        pass


def test_trials_of_estimators_go_on_from_their_beginnings_with_the_best_one(tmp_path):
    def build(trial):
        alpha = trial.suggest_float("alpha", 1e-5, 1e-1, log=True)
        return SGDClassifier(alpha=alpha, random_state=0), {"rounds": 2}

    calls: Counter[int] = Counter()

    def call(policy, *, resume, most=100):
        asked = {"metric": "score", "direction": "maximize", "scoring": "None"}
        with kept_search(policy, asked, SearchState, resume=resume) as kept:
            name = None if kept.state is None else kept.state.study_name
            study = open_study(direction="maximize", sampler=None, pruner=None, storage=None, study_name=name, seed=1)
            check_goes_on(study, build, kept.state)
            folds = Folds(3, len(X), X.shape[1:], Y)
            tasks = EstimatorTasks(build=build, scoring=None, folds=folds, has_weights=False, weighs_scores=False)
            found = OptunaStudy(study, tasks.task, metric="score", most=5, timeout_s=None, kept=kept)
            while sum(calls.values()) < most and (handed := found.next()) is not None:
                assert handed.request.place is None, "it has no checkpoints of its own"
                calls[handed.trial.number] += 1
                found.done(handed, handed.request.work(handed.request, Session(), TABLES))
            found.next() if most < 100 else None
            return SearchResult(found)

    whole = call(Checkpoint(tmp_path / "whole"), resume=False)
    calls.clear()
    call(Checkpoint(tmp_path / "kept"), resume=False, most=3)
    found = call(Checkpoint(tmp_path / "kept"), resume=True)
    assert dict(calls) == dict.fromkeys(range(5), 1)
    assert [(each.params, each.value) for each in found.trials] == [(each.params, each.value) for each in whole.trials]
    np.testing.assert_array_equal(found.best_model.coef_, whole.best_model.coef_)
    assert all(each.state == optuna.trial.TrialState.COMPLETE for each in found.trials)


class Session:
    """Tells no one."""

    def report(self, **scores):
        pass

    def receive(self, timeout_s):
        from dask_train.errors import StalledError

        raise StalledError("nothing")

    def should_stop(self):
        return False


def test_a_grid_that_an_earlier_version_has_kept_is_resumed_and_its_model_stays(tmp_path):
    whole = grid(None)
    done(whole)
    scores = {"scores": whole._scores, "warnings": ["odd"], "num_fits": whole.num_fits, "refit_s": 0.5}
    policy = Checkpoint(tmp_path / "kept", keep=1)

    def write(folder):
        told = {"format": 1, **scores, "has_best": True, "arguments": ASKED}
        (folder / "grid.pickle").write_bytes(cloudpickle.dumps(told))
        best_model.keep(folder / "model", whole.best[2])

    folder = CheckpointFolder(CheckpointPlace(url=str(tmp_path / "kept"), run="grid-earlier", keep=1))
    folder.check()
    folder.save(write, tmp_path)
    for _ in range(3):  # checkpoints follow, of which only the last one and the best stay
        with kept_search(policy, ASKED, GridState, resume=True) as kept:
            work = grid(kept)
            assert done(work) == 6, "what failed"
            work.end()
        assert (work.best[0], work.refit_s, [*work.warnings]) == (whole.best[0], 0.5, ["odd"])
        np.testing.assert_array_equal(work.best[2].predict_proba(X), whole.best[2].predict_proba(X))


def test_what_an_error_has_left_without_scores_is_fitted_in_the_next_call(tmp_path):
    policy = Checkpoint(tmp_path / "kept")
    with kept_search(policy, ASKED, GridState, resume=False) as kept:
        work = grid(kept)

        def train(_):
            assert done(work, 4) == 4
            raise PlacementError("There is no room.")

        with pytest.raises(PlacementError) as raised:
            trained(SimpleNamespace(train=train), work, nullcontext(), GridResult)
    found = raised.value.result
    assert np.isfinite(found.cv_results_["mean_test_score"]).sum() == 2, "those of the first step that is through"
    assert found.best_params["standardscaler__with_mean"] in (True, False)
    with kept_search(policy, ASKED, GridState, resume=True) as kept:
        work = grid(kept)
        assert done(work) == 7, "two folds and all rows, and what failed on four folds"
    assert np.isfinite(work.table["mean_test_score"]).sum() == 4
