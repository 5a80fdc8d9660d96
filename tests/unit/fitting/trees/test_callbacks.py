"""Callbacks of boosted trees: those of a call that resumes run, and continue the progress of earlier ones."""

from __future__ import annotations

import threading
from copy import deepcopy

import cloudpickle
import lightgbm
import numpy as np
import pytest
import xgboost
from alone import PLAIN, SIGNAL, Alone, X, cut, grow, scored

import dask_train as dt
from dask_train.errors import CheckpointError
from dask_train.fitting.trees.callbacks import KeptCallbacks, take_changes

ROWS = cut(X[:, :3], SIGNAL)
XGBOOST, LIGHTGBM = "validation_0", "valid_0"


def fail_once(number, file):
    """End a worker in its fifth round, as if it were lost."""
    if number == 4 and file is not None and not file.exists():
        file.touch()
        raise InterruptedError


class Rounds(xgboost.callback.TrainingCallback):
    """Notes the rounds, and may stop after one; of either library."""

    def __init__(self, tag="", last=None, lost=None):
        self.tag, self.last, self.lost, self.seen, self.by_round, self.order = tag, last, lost, [], {}, 0

    def after_iteration(self, model, epoch, evals_log):
        fail_once(epoch, self.lost)
        self.seen.append(epoch)
        self.by_round[epoch] = self.tag
        return epoch == self.last

    def __call__(self, env):
        self.after_iteration(None, env.iteration, None)


class Others(Rounds):
    """A callback of another class."""


class Locking(Rounds):
    """Makes in its first round what can't be pickled."""

    lock = None

    def after_iteration(self, model, epoch, evals_log):
        self.lock = self.lock or threading.Lock()
        return super().after_iteration(model, epoch, evals_log)


def fitted(library, folder, rounds, callbacks, **more):
    """Fit with a checkpoint of each round, from which later calls resume."""
    metrics = more.pop("metrics", None)
    settings = {"evals": (scored(library, PLAIN),), "keeps": True, **more}
    if library == XGBOOST:
        model = xgboost.XGBRegressor(n_estimators=rounds, max_depth=2, callbacks=callbacks, eval_metric=metrics)
    else:
        model = lightgbm.LGBMRegressor(n_estimators=rounds, num_leaves=4, verbose=-1)
        settings["settings"] = {"callbacks": callbacks, "eval_metric": metrics}
    session = Alone(ROWS, folder, **{library: ROWS})
    found = grow(session, model, PLAIN, **settings)
    found.returned = found.estimator, found.callbacks
    take_changes(callbacks, found.callbacks, model)
    found.callbacks, found.notices = callbacks, session.notices
    return found


LIBRARIES = pytest.mark.parametrize("library", [XGBOOST, LIGHTGBM])


@LIBRARIES
def test_callbacks_of_a_call_that_resumes_run_and_continue_those_of_their_class(tmp_path, library):
    fitted(library, tmp_path, 3, [Rounds("first")])
    (others, mine) = fitted(library, tmp_path, 6, [Others("new"), Rounds("second")]).callbacks
    assert (mine.tag, mine.seen, others.seen) == ("second", [0, 1, 2, 3, 4, 5], [3, 4, 5])
    assert mine.by_round == {0: "first", 1: "first", 2: "first", 3: "second", 4: "second", 5: "second"}


@LIBRARIES
def test_callbacks_of_workers_that_start_again_come_back_as_of_a_fit_without_a_loss(tmp_path, library):
    callbacks, kept = [Others(), Rounds(lost=tmp_path / "lost")], tmp_path / "kept"
    with pytest.raises(InterruptedError):
        fitted(library, kept, 6, deepcopy(callbacks), run="one")
    (others, mine) = fitted(library, kept, 6, callbacks, run="one").callbacks
    assert others.seen == mine.seen == [0, 1, 2, 3, 4, 5]


def test_what_callbacks_of_lightgbm_close_over_continues_where_workers_start_again(tmp_path):
    def counting():
        seen = []

        def count(env):
            fail_once(env.iteration, tmp_path / "lost")
            seen.append(env.iteration)
            count.seen = list(seen)

        return count

    with pytest.raises(InterruptedError):
        fitted(LIGHTGBM, tmp_path / "kept", 6, [counting()], run="one")
    assert fitted(LIGHTGBM, tmp_path / "kept", 6, [counting()], run="one").callbacks[0].seen == [0, 1, 2, 3, 4, 5]


def test_a_fit_that_a_callback_has_ended_goes_on_if_its_arguments_changed(tmp_path):
    for more in ([], [], [Others()]):
        assert fitted(XGBOOST, tmp_path, 9, [Rounds(last=3), *more]).num_rounds == 4
    assert fitted(XGBOOST, tmp_path, 9, [Rounds(last=6)]).num_rounds == 7
    assert fitted(XGBOOST, tmp_path, 9, []).num_rounds == 9


def slower(number):
    return 0.9 * 0.5**number


@pytest.mark.parametrize("lost", [True, False], ids=["workers start again", "another call"])
def test_a_round_that_resumes_has_the_rate_of_xgboosts_schedule(tmp_path, lost):
    def trees(folder, rounds, **more):
        callbacks = [xgboost.callback.LearningRateScheduler(slower)]
        if lost:
            callbacks.append(Rounds(lost=tmp_path / "lost"))
        return fitted(XGBOOST, tmp_path / folder, rounds, callbacks, **more).estimator.get_booster().get_dump()

    if lost:
        with pytest.raises(InterruptedError):
            trees("kept", 6, run="one")
        found = trees("kept", 6, run="one")
    else:
        trees("kept", 3)
        found = trees("kept", 6)
    assert found == trees("whole", 6)


def test_rates_for_fewer_rounds_are_asked_for_no_others(tmp_path):
    rates = [0.3, 0.2, 0.1]
    for rounds in (3, 2):
        scheduler = xgboost.callback.LearningRateScheduler(rates[:rounds].__getitem__)
        assert fitted(XGBOOST, tmp_path, rounds, [scheduler]).num_rounds == 3


@pytest.mark.parametrize("then", [[], [xgboost.callback.EarlyStopping(rounds=50)]], ids=["new", "continued"])
def test_early_stopping_of_xgboost_counts_rounds_from_the_first(tmp_path, then):
    start = xgboost.XGBRegressor(n_estimators=2, max_depth=2).fit(X[:, :3], SIGNAL).get_booster()
    fitted(XGBOOST, tmp_path, 3, then, start=start)
    stopping = xgboost.callback.EarlyStopping(rounds=1, min_delta=1e9)
    found = fitted(XGBOOST, tmp_path, 9, [stopping], start=start)
    best, rounds = (2, 4) if then else (3, 5)
    assert (found.estimator.best_iteration, found.num_rounds) == (2 + best, rounds)


@pytest.mark.parametrize("then", [[], [lightgbm.early_stopping(50, verbose=False)]], ids=["new", "continued"])
def test_early_stopping_of_lightgbm_has_its_own_arguments(tmp_path, then):
    fitted(LIGHTGBM, tmp_path, 3, then)
    stopping = lightgbm.early_stopping(1, min_delta=1e9, verbose=False)
    recorded = {}
    found = fitted(LIGHTGBM, tmp_path, 9, [stopping, lightgbm.record_evaluation(recorded)])
    best, rounds = (3, 4) if then else (4, 5)
    assert (found.estimator.best_iteration_, found.num_rounds) == (best, rounds)
    assert recorded["valid_0"]["l2"] == found.history["val_l2"][3:], "it was not there before"


def mean_error(y_true, y_score):
    return float(np.abs(y_true - y_score).mean())


def mean_error_of_lightgbm(y_true, y_score):
    return "mean_error", mean_error(y_true, y_score), False


@LIBRARIES
@pytest.mark.parametrize("stops", [False, True], ids=["", "stops early"])
def test_a_call_that_resumes_is_refused_where_it_scores_otherwise(tmp_path, library, stops):
    def fit(rounds, **more):
        either = xgboost.callback.EarlyStopping(rounds=50), lightgbm.early_stopping(50, verbose=False)
        return fitted(library, tmp_path, rounds, [either[library == LIGHTGBM]] if stops else [], **more)

    own = mean_error if library == XGBOOST else mean_error_of_lightgbm
    metrics = ["mape", own]
    fit(3, metrics=metrics)
    of_other_calls = ({"metrics": own}, rf".*mean_error of {library}.*"), ({"metrics": metrics, "evals": ()}, "none")
    for others, told in of_other_calls:
        there = rf"scores of the checkpoint are .*mean_error of {library}.*, and those of this call are {told}\. Pass"
        if not stops or "evals" not in others:
            with pytest.raises(ValueError, match=there):
                fit(6, **others)
    assert len(fit(6, metrics=metrics).history["val_mean_error"]) == 6


@pytest.mark.parametrize(("library", "score"), [(XGBOOST, "rmse of validation_0"), (LIGHTGBM, "l2 of valid_0")])
def test_no_scores_begin_where_a_fit_resumes(tmp_path, library, score):
    fitted(library, tmp_path, 3, [], evals=())
    with pytest.raises(ValueError, match=rf"scores of the checkpoint are none, and .* are {score}\. Pass"):
        fitted(library, tmp_path, 5, [])


def test_early_stopping_of_xgboost_that_looks_at_another_score_begins_anew(tmp_path):
    def stopping(metric, rounds, **more):
        return xgboost.callback.EarlyStopping(rounds=rounds, metric_name=metric, **more)

    metrics = ["mae", "rmse"]
    fitted(XGBOOST, tmp_path, 3, [stopping("mae", 50)], metrics=metrics)
    found = fitted(XGBOOST, tmp_path, 9, [stopping("rmse", 2, min_delta=1e9)], metrics=metrics)
    assert (found.estimator.best_iteration, found.num_rounds) == (3, 6)
    assert float(found.estimator.get_booster().attr("best_score")) == pytest.approx(found.history["val_rmse"][3])


def test_lists_of_a_longer_fit_and_dicts_are_those_of_the_call_that_resumes(tmp_path):
    rows = {"validation_data": (X[:50, :3], SIGNAL[:50]), "workers": 0, "verbose": 0}
    rates, kept = [0.1] * 3 + [0.5] * 2, dt.Checkpoint(tmp_path, every_steps=1)
    recorded, mine = {}, Rounds("second")
    for rounds, more in ((3, [Rounds("first")]), (5, [mine])):
        model = lightgbm.LGBMRegressor(n_estimators=rounds, num_leaves=4, verbose=-1)
        recorded = {}
        more += [lightgbm.reset_parameter(learning_rate=rates[:rounds]), lightgbm.record_evaluation(recorded)]
        dt.fit(model, X[:, :3], SIGNAL, callbacks=more, checkpoint=kept, resume=rounds == 5, **rows)
    whole = lightgbm.LGBMRegressor(n_estimators=5, num_leaves=4, verbose=-1)
    dt.fit(whole, X[:, :3], SIGNAL, callbacks=[lightgbm.reset_parameter(learning_rate=rates)], **rows)
    np.testing.assert_allclose(model.predict(X[:, :3]), whole.predict(X[:, :3]))
    assert recorded == whole.evals_result_
    assert mine.seen == [0, 1, 2, 3, 4]


def test_what_callbacks_share_they_share_where_workers_start_again():
    shared = []
    one, other = Rounds(), Rounds()
    one.seen = other.seen = shared
    kept, again = KeptCallbacks([one, other], "run"), KeptCallbacks([Rounds(), Rounds()], "run")
    shared.append(7)
    assert again.take(kept.dumps({"auc": [1]}, 5)) == ({"auc": [1]}, 5)
    first, second = again.callbacks
    assert first.seen is second.seen
    assert first.seen == [7]
    assert not again.resumed
    assert [changes.attributes for changes in again.changes_of(again._passed)] == [{"seen": [7]}] * 2


ANEW = "Callback Locking begins anew: what it held can't be pickled, so no checkpoint has it."
LEFT = (
    "Callbacks have changed Locking.lock in the first worker's process, and it stays as it was here, since it can't be "
    "pickled. Let them gather numbers, text and arrays in other attributes."
)


@LIBRARIES
def test_what_can_not_be_pickled_stays_behind_and_its_callback_begins_anew(tmp_path, library):
    def fit(rounds, *callbacks, **more):
        found = fitted(library, tmp_path / "kept", rounds, deepcopy(list(callbacks)), **more)
        cloudpickle.dumps(found.returned)
        return found

    found = fit(2, Locking(), Others())
    assert [each.seen for each in found.callbacks] == [[0, 1], [0, 1]]
    assert found.notices == [LEFT]
    found = fit(4, Locking(), Others())
    assert [each.seen for each in found.callbacks] == [[2, 3], [0, 1, 2, 3]]
    assert found.notices == [ANEW, LEFT]
    lost = Others(lost=tmp_path / "lost")
    with pytest.raises(InterruptedError):
        fit(6, Locking(), lost, run="one")
    found = fit(6, Locking(), lost, run="one")
    assert [each.seen for each in found.callbacks] == [[4, 5], [0, 1, 2, 3, 4, 5]]
    assert found.notices == [ANEW, LEFT]
    found = fitted(library, None, 2, [Locking()], keeps=False, in_process=True)
    assert (found.notices, found.callbacks[0].lock.locked()) == ([], False)


def test_what_can_not_be_pickled_is_kept_in_no_memory():
    kept = KeptCallbacks([Locking()], "run")
    kept.callbacks[0].lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle"):
        kept.dumps()


@pytest.mark.parametrize("run", ["one", "another"], ids=["workers start again", "another call"])
def test_the_object_of_a_method_continues(run):
    before, mine = Rounds(), Rounds()
    kept, again = KeptCallbacks([before.__call__], "one"), KeptCallbacks([mine.__call__], run)
    before.seen.append(7)
    before.order = 5  # its own: LightGBM sets that of functions and callable objects
    again.take(kept.dumps())
    (changes,) = again.changes_of(again._passed)
    assert changes.attributes == {"seen": [7], "order": 5}
    take_changes([mine.__call__], [changes], None)
    assert (mine.seen, mine.order) == ([7], 5)


def test_a_checkpoint_brings_back_no_code_of_then():
    mine = Rounds()
    kept, again = KeptCallbacks([Rounds()], "one"), KeptCallbacks([mine], "another")
    kept.callbacks[0].tag, kept.callbacks[0].last = (lambda: 1), 5
    again.take(kept.dumps())
    assert (mine.tag, mine.last) == ("", 5)
    assert again.callbacks == [mine]


def test_callbacks_that_can_not_be_read_are_told_of():
    with pytest.raises(CheckpointError, match=r"callbacks of the checkpoint can't be read: ValueError"):
        KeptCallbacks([], "run").take(b"\x80\x04K\x01K\x02K\x03\x87.")  # (1, 2, 3)
