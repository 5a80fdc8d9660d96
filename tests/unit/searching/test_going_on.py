"""A search whose client dies at any moment finds, in the next call, what it would have found; without a cluster."""

from __future__ import annotations

import threading

import numpy as np
import optuna
import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.model_kind import TrialSpec
from dask_train.fitting.roles.entry import KerasTrialRole
from dask_train.fitting.spec import FitTask
from dask_train.searching.going_on import SearchState, check_goes_on
from dask_train.searching.kept import KeptSearch, kept_search
from dask_train.searching.opening import open_study
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.result import SearchResult
from dask_train.searching.worker import TrialDone

NUM_TRIALS = 12  # the first ten of Optuna's own sampler are random
ARGUMENTS = {"metric": "score", "direction": "maximize", "epochs": 3, "seed": 1}


def kept_in(folder, arguments=ARGUMENTS, *, resume, **settings):
    return kept_search(Checkpoint(folder, **settings), arguments, SearchState, resume=resume, of_trials=True)


def name_of(kept):
    return None if kept.state is None else kept.state.study_name


class Killed(BaseException):
    """The client is gone; what follows in the call has not happened."""


def build(trial):
    x = trial.suggest_float("x", -1, 1)
    if trial.number == 2:
        raise RuntimeError("no such model")
    trial.suggest_categorical("kind", ["a", "b"])
    return spec({"x": x})


def spec(header):
    task = FitTask(header=header, arrays=[], columns=Columns(features=0))
    return TrialSpec(work=KerasTrialRole(task), model=lambda parts: parts)


class Prunes(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.number == 4 and trial.last_step == 1


def call(folder, storage=None, *, resume=False, arguments=ARGUMENTS, sampler=None, built=build, trials=NUM_TRIALS):
    """One call of ``search``, whose trials are trained at once; and how often each was."""
    trained = []
    with kept_in(folder, arguments, resume=resume) as kept:
        study = open_study(
            direction="maximize",
            sampler=sampler,
            pruner=Prunes(),
            storage=storage,
            study_name=name_of(kept) or (storage and "mine"),
            seed=1,
        )
        check_goes_on(study, built, kept.state)
        searched = OptunaStudy(study, built, metric="score", most=trials, timeout_s=None, kept=kept)
        while (handed := searched.next()) is not None:
            number, value = handed.trial.number, -((handed.trial.params["x"] - 0.3) ** 2)
            trained.append(number)
            for epoch in range(3):
                searched.scored(handed, {"epoch": epoch, "score": value})
            if number == 6 and "retry_of" not in handed.trial.user_attrs:
                searched.lost(handed, "its worker left")
                continue
            parts = ({"of": number, "bytes": b"\x00"}, [np.arange(number)])
            searched.done(handed, TrialDone(number=number, value=value, epoch=0, parts=parts, seconds=1.0))
        kept.end()
    return searched, trained


def seen(searched):
    leave_out = ("seconds",)
    return [
        (
            trial.number,
            trial.state,
            trial.params,
            trial.value,
            trial.intermediate_values,
            {name: value for name, value in trial.user_attrs.items() if name not in leave_out},
        )
        for trial in searched.study.get_trials()
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    searched, trained = call(tmp_path_factory.mktemp("whole") / "kept")
    assert len(trained) == NUM_TRIALS, "one can't be built, one is repeated"
    return searched


def dies(patch, owner, name, at, *, before):
    """The client dies just before, or after, the given call of a method."""
    method, calls = getattr(owner, name), []

    def counted(*args, **more):
        calls.append(args)
        if before and len(calls) == at:
            raise Killed
        found = method(*args, **more)
        if len(calls) == at:
            raise Killed
        return found

    patch.setattr(owner, name, counted)


@pytest.mark.parametrize(
    ("owner", "name", "at", "before", "stored"),
    [
        (KeptSearch, "save", 1, True, False),
        *((KeptSearch, "save", at, False, False) for at in (1, 5, 14, 24)),
        *((optuna.Study, "tell", at, True, False) for at in (3, 5, 7, 13)),
        (optuna.Study, "tell", 7, False, False),
        (optuna.Study, "add_trial", 1, False, False),
        (KeptSearch, "save", 14, False, True),
        (optuna.Study, "tell", 7, True, True),
    ],
)
def test_a_client_that_dies(tmp_path, undisturbed, owner, name, at, before, stored):
    storage = tmp_path / "study.db" if stored else None
    with pytest.MonkeyPatch.context() as patch:
        dies(patch, owner, name, at, before=before)
        with pytest.raises(Killed):
            call(tmp_path / "kept", storage)
    finished = {"COMPLETE", "PRUNED", "FAIL"}
    searched, trained = call(tmp_path / "kept", storage, resume=True)
    assert seen(searched) == seen(undisturbed)
    assert {trial.state.name for trial in searched.study.trials} <= finished
    assert searched.best[:2] == undisturbed.best[:2]
    assert searched.best[2][0] == undisturbed.best[2][0]
    np.testing.assert_array_equal(searched.best[2][1][0], undisturbed.best[2][1][0])
    assert [ended.number for ended in searched.ended] == [ended.number for ended in undisturbed.ended]
    again, trained = call(tmp_path / "kept", storage, resume=True)
    assert (trained, seen(again)) == ([], seen(undisturbed))
    assert SearchResult(again).best_trial.number == undisturbed.best[0]
    assert not list((tmp_path / "kept").glob("trial-*"))


def test_a_repeat_that_was_taken_from_the_storage_is_not_waited_for(tmp_path):
    storage = tmp_path / "study.db"
    with pytest.MonkeyPatch.context() as patch:
        dies(patch, optuna.Study, "ask", 8, before=False)  # its client dies before it is built
        with pytest.raises(Killed):
            call(tmp_path / "kept", storage)
    searched, trained = call(tmp_path / "kept", storage, resume=True)
    assert trained == list(range(8, NUM_TRIALS + 1))
    assert [trial.number for trial in searched.study.trials if trial.state.name == "RUNNING"] == [7]


def test_what_has_ended_is_not_trained_again_and_there_may_be_more(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        dies(patch, KeptSearch, "save", 4, before=False)  # two begun, one of them ended; the third can't be built
        with pytest.raises(Killed):
            call(tmp_path / "kept")
    searched, trained = call(tmp_path / "kept", resume=True, trials=NUM_TRIALS + 2)
    assert trained == list(range(3, NUM_TRIALS + 3))
    assert searched.study.trials[-1].number == NUM_TRIALS + 2, "more of them may be asked for"


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sampler_that_had_no_more_to_suggest_has_none_in_the_next_call(tmp_path):
    def few(trial):
        trial.suggest_categorical("kind", ["a", "b", "c"])
        return spec({})

    def searched(resume):
        with kept_in(tmp_path / "kept", resume=resume) as kept:
            sampler = optuna.samplers.BruteForceSampler(seed=1)
            study = open_study(
                direction="maximize", sampler=sampler, pruner=None, storage=None, study_name=name_of(kept), seed=1
            )
            found = OptunaStudy(study, few, metric="score", most=50, timeout_s=None, kept=kept)
            while (handed := found.next()) is not None:
                number = handed.trial.number
                parts = ({"of": number}, [])
                found.done(handed, TrialDone(number=number, value=float(number), epoch=0, parts=parts, seconds=1.0))
            return len(study.trials)

    assert (searched(False), searched(True)) == (3, 3)


def test_a_trial_beside_the_grid_that_ended_as_its_client_died(tmp_path):
    def of_grid(trial):
        trial.suggest_categorical("kind", ["a"])
        return spec({})

    storage = f"sqlite:///{tmp_path}/study.db"
    before = optuna.create_study(storage=storage, study_name="mine", direction="maximize")
    before.enqueue_trial({"kind": "a"})

    def searched(resume):
        with kept_in(tmp_path / "kept", resume=resume) as kept:
            sampler = optuna.samplers.GridSampler({"kind": ["a"]}, seed=1)
            study = open_study(
                direction="maximize", sampler=sampler, pruner=None, storage=storage, study_name="mine", seed=1
            )
            found = OptunaStudy(study, of_grid, metric="score", most=50, timeout_s=None, kept=kept)
            while (handed := found.next()) is not None:
                done = TrialDone(number=handed.number, value=0.5, epoch=0, parts=({}, []), seconds=1.0)
                found.done(handed, done)
            return study

    with pytest.MonkeyPatch.context() as patch:
        dies(patch, optuna.Study, "tell", 1, before=True)
        with pytest.raises(Killed):
            searched(resume=False)
    assert [trial.state.name for trial in searched(resume=True).trials] == ["COMPLETE"] * 2


def test_a_trial_that_was_in_hand_has_the_places_of_its_earlier_starts(tmp_path):
    def handed(resume):
        with kept_in(tmp_path / "kept", keep=3, resume=resume) as kept:
            study = open_study(
                direction="maximize", sampler=None, pruner=None, storage=None, study_name=name_of(kept), seed=1
            )
            searched = OptunaStudy(study, build, metric="score", most=3, timeout_s=None, kept=kept)
            first = searched.next()
            searched.cut_short("It was interrupted.")
            return first.request, first.trial.params

    first, params = handed(False)
    assert first.place.earlier == []
    assert first.work.task.checkpoint == Checkpoint(first.place.url, keep=3, best="score", mode="max")
    assert first.work.task.resume
    (tmp_path / "kept" / first.place.url.rpartition("/")[2]).mkdir()
    second, again = handed(True)
    third, _ = handed(True)
    assert again == params
    assert second.place.earlier == [first.place.url]
    assert third.place.earlier == [first.place.url, second.place.url]
    assert (tmp_path / "kept" / first.place.url.rpartition("/")[2]).exists()
    anew, _ = handed(False)
    assert anew.place.earlier == []
    assert not (tmp_path / "kept" / first.place.url.rpartition("/")[2]).exists()


@pytest.mark.parametrize("is_kept", [False, True])
def test_ctrl_c_while_a_new_best_one_is_kept_leaves_the_one_before_it(tmp_path, monkeypatch, is_kept):
    """Each trial is kept when it begins, and when it ends; the second one is better."""

    def finish(searched):
        handed = searched.next()
        parts = ({"of": handed.number}, [])
        done = TrialDone(number=handed.number, value=float(handed.number), epoch=0, parts=parts, seconds=1.0)
        searched.done(handed, done)

    def begun(kept):
        study = open_study(
            direction="maximize", sampler=None, pruner=None, storage=None, study_name=name_of(kept), seed=1
        )
        return OptunaStudy(study, lambda _: spec({}), metric="score", most=3, timeout_s=None, kept=kept)

    with kept_in(tmp_path / "kept", resume=False) as kept:
        searched = begun(kept)
        finish(searched)
        save = kept.save
        calls = []

        def interrupted(state, model):
            calls.append(state.ending)
            if len(calls) == 1 or is_kept:
                save(state, model)
            if len(calls) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(kept, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            finish(searched)
        searched.cut_short("It was interrupted.")
        result = SearchResult(searched)
        assert result.best_trial.number == searched.best[0] == 0, "whose model is here"
    with kept_in(tmp_path / "kept", resume=True) as kept:
        again = begun(kept)
        assert again.best[0] == (1 if is_kept else 0)
        while again.num_left:
            finish(again)
        assert [trial.state.name for trial in again.study.trials] == ["COMPLETE"] * 3
        assert again.best[0] == SearchResult(again).best_trial.number


def test_another_search_is_refused(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        dies(patch, KeptSearch, "save", 5, before=False)
        with pytest.raises(Killed):
            call(tmp_path / "kept")

    def wider(trial):
        trial.suggest_float("x", -2, 2)
        trial.suggest_categorical("kind", ["a", "b"])

    def other(trial):
        trial.suggest_float("x", -1, 1)
        trial.suggest_int("units", 1, 2)

    stranger = optuna.create_study(study_name="stranger", direction="maximize", storage=f"sqlite:///{tmp_path}/a.db")
    stranger.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL))
    for told, match in (
        ({"arguments": {**ARGUMENTS, "epochs": 4}}, "begun with something else: epochs was 3, and is 4"),
        ({"arguments": {**ARGUMENTS, "metric": "loss"}}, "metric was 'score', and is 'loss'"),
        ({"sampler": optuna.samplers.RandomSampler(1)}, "begun with TPESampler, and sampler= is a RandomSampler"),
        ({"built": wider}, "build suggests something else than when the search was begun: x of trial 1"),
        ({"built": other}, "build suggests something else than when the search was begun: kind, units of trial 1"),
    ):
        with pytest.raises(CheckpointError, match=match):
            call(tmp_path / "kept", resume=True, **told)
    with (
        kept_in(tmp_path / "kept", resume=True) as kept,
        pytest.raises(CheckpointError, match="The checkpoint is of another study"),
    ):
        check_goes_on(stranger, build, kept.state)
    with kept_in(tmp_path / "kept", resume=True) as kept:
        kept.check_same({"data": "3 rows"})  # the first call died before it knew of them


def test_a_sampler_that_cannot_be_kept_is_refused(tmp_path):
    class Locked(optuna.samplers.RandomSampler):
        def __init__(self):
            super().__init__(0)
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match=r"sampler is a Locked, which can't be pickled: .* leave checkpoint= out"):
        call(tmp_path / "kept", sampler=Locked())
