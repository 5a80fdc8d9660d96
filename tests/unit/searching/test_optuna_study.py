"""What Optuna is asked and told, without a cluster: how trials are counted, repeated, judged and kept."""

from __future__ import annotations

import warnings
from dataclasses import replace

import optuna
import pytest
from sklearn.linear_model import Ridge

from dask_train.errors import DaskTrainError
from dask_train.fitting.model_kind import TrialSpec
from dask_train.searching.best_epoch import BestEpoch
from dask_train.searching.checks import OtherKindError, check_built
from dask_train.searching.opening import open_study
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.result import SearchResult
from dask_train.searching.worker import NoMetricError, TrialDone


def opened(sampler=None, **settings):
    given = {"direction": "maximize", "pruner": None, "storage": None, "study_name": None, "seed": 0, **settings}
    return open_study(sampler=sampler or optuna.samplers.RandomSampler(0), **given)


def built(trial):
    trial.suggest_float("x", 0, 1)
    return TrialSpec(work="what nobody looks into here", model=lambda parts: parts)


def trials(study=None, *, build=built, most=3, timeout_s=None):
    return OptunaStudy(study or opened(), build, metric="score", most=most, timeout_s=timeout_s)


def done(handed, value, parts=("header", [])):
    return TrialDone(number=handed.trial.number, value=value, epoch=1, parts=parts, seconds=1.0)


def raises_interrupt(*_, **__):
    raise KeyboardInterrupt


def test_what_is_lost_is_begun_once_more_with_the_same_parameters_and_on_top():
    searched = trials(most=2)
    first = searched.next()
    searched.lost(first, "its worker left")
    assert searched.num_left == 2
    again = searched.next()
    assert again.trial.params == first.trial.params
    assert again.trial.user_attrs == {"retry_of": 0}
    searched.lost(again, "its worker left")
    assert searched.num_left == 1, "not a third time"
    searched.done(searched.next(), done(again, 0.5))
    assert searched.next() is None
    assert [ended.state for ended in searched.ended] == ["FAIL", "FAIL", "COMPLETE"]


def test_a_repeat_that_another_client_takes_is_no_longer_waited_for():
    study = opened()
    one, other = trials(study, most=1), trials(study, most=1)
    one.lost(one.next(), "its worker left")
    again = other.next()
    assert again.is_repeat
    assert one.num_left == 0, "the other one trains it"
    assert other.num_left == 1, "on top of its own"


@pytest.mark.parametrize("num_before", [0, 12])
def test_clients_that_begin_together_draw_other_parameters_and_one_alone_the_same(num_before):
    def client(storage):
        study = open_study(direction="maximize", sampler=None, pruner=None, storage=storage, study_name="mine", seed=3)
        return OptunaStudy(study, built, metric="score", most=2, timeout_s=None, sampler_seed=3)

    def drawn():
        storage = optuna.storages.InMemoryStorage()
        before = client(storage).study
        for number in range(num_before):  # from some on, the sampler goes by them
            before.add_trial(
                optuna.trial.create_trial(
                    params={"x": number / 20},
                    distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
                    value=number,
                )
            )
        clients = [client(storage), client(storage)]
        return [each.next().trial.params["x"] for _ in range(2) for each in clients]

    assert len(set(drawn())) == 4
    assert drawn() == drawn()


def test_a_grid_is_gone_through_once_by_several_at_a_time_also_where_a_point_was_lost():
    study = opened(optuna.samplers.GridSampler({"x": [0.0, 0.25, 0.5]}, seed=0))
    searched = trials(study, most=50)
    in_hand = [searched.next() for _ in range(3)]
    assert searched.next() is None
    searched.lost(in_hand[2], "its worker left")
    for handed in in_hand[:2]:
        searched.done(handed, done(handed, handed.trial.params["x"]))
    again = searched.next()
    assert again.trial.params == in_hand[2].trial.params
    searched.done(again, done(again, 0.1))
    assert searched.num_left == 0
    searched.close()
    assert trials(study).num_left == 0, "nothing is left for another call either"


def test_two_searches_of_one_study_end_each_by_itself_and_stop_together():
    study = opened(optuna.samplers.GridSampler({"x": [0.0, 0.5]}, seed=0))
    one, other = trials(study, most=50), trials(study, most=50)
    first, second = one.next(), other.next()
    one.done(first, done(first, 0.5))
    other.done(second, done(second, 0.5))
    assert (one.num_left, other.num_left) == (0, 0), "the sampler has said so once"
    one.close()
    study.stop()
    other.close()
    assert "stop" not in vars(study), "as it was made"


def test_what_keras_would_have_warned_of_is_kept_once():
    searched = trials(most=3)
    for _ in range(3):
        handed = searched.next()
        searched.done(handed, replace(done(handed, 0.5), warnings=["the data ends"]))
    assert searched.warnings == {"the data ends": 0}


def test_what_a_model_warns_of_when_it_is_made_is_kept_too():
    def loud(trial):
        return replace(built(trial), model=lambda _: warnings.warn("it did not converge", stacklevel=1))

    searched = trials(build=loud)
    for value in (0.5, 0.4):  # the second one is not made
        handed = searched.next()
        searched.done(handed, done(handed, value))
    assert searched.warnings == {"it did not converge": 0}


def test_only_what_is_better_than_all_before_is_kept():
    searched = trials(most=5)
    handed = [searched.next() for _ in range(4)]
    assert handed[0].request.to_beat is None
    searched.done(handed[1], done(handed[1], 0.5, parts="one"))
    searched.done(handed[0], done(handed[0], 0.5, parts="equal"))
    searched.done(handed[2], done(handed[2], 0.4, parts="worse"))
    assert searched.best == (1, 0.5, "one")
    assert searched.next().request.to_beat == 0.5
    result = SearchResult(searched)
    assert result.best_trial.number == 1, "of equals the one whose model is here; Optuna names the first"
    searched.done(handed[3], done(handed[3], 0.6, parts="best"))
    assert searched.best == (3, 0.6, "best")
    assert searched.best_ended.number == 3


def test_a_pruned_trial_is_told_once_and_what_its_workers_say_then_is_not_heard():
    class Prunes(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step == 1

    searched = trials(opened(pruner=Prunes()))
    handed = searched.next()
    assert not searched.scored(handed, {"epoch": 0, "step": 3, "score": 0.9}), "in the middle of an epoch"
    assert not searched.scored(handed, {"epoch": 0, "score": 0.1})
    assert not searched.scored(handed, {"epoch": 0, "score": 0.2}), "an epoch again"
    assert searched.scored(handed, {"epoch": 1, "score": 0.2})
    assert not searched.scored(handed, {"epoch": 2, "score": 0.3})
    searched.done(handed, done(handed, 0.9))
    searched.cut_short("It was interrupted.")
    (trial,) = searched.study.trials
    assert (trial.state.name, trial.value, trial.intermediate_values) == ("PRUNED", 0.2, {0: 0.1, 1: 0.2})
    assert searched.best is None
    with pytest.raises(DaskTrainError, match=r"No trial of study .* is complete"):
        _ = SearchResult(searched).best_model


@pytest.mark.parametrize("num_others", [0, 1], ids=["alone", "beside another"])
@pytest.mark.parametrize("at", ["epoch", "seconds", "tell", "told"])
def test_ctrl_c_while_a_new_best_one_is_recorded_loses_no_model(monkeypatch, at, num_others):
    def interrupted(*args, **more):
        if at == "seconds" and "epoch" in args:
            return
        if at == "told":
            told(*args, **more)
        monkeypatch.undo()
        raise KeyboardInterrupt

    told, tells = optuna.Study.tell, at in ("tell", "told")
    searched = trials()
    first, second = searched.next(), searched.next()
    others = [searched.next() for _ in range(num_others)]
    searched.done(first, done(first, 0.5, parts="the first"))
    monkeypatch.setattr(*((optuna.Study, "tell") if tells else (optuna.Trial, "set_user_attr")), interrupted)
    with pytest.raises(KeyboardInterrupt):
        searched.done(second, done(second, 0.9, parts="the second"))
    searched.cut_short("It was interrupted.")
    is_told = at != "epoch"
    states = ["COMPLETE", "COMPLETE" if is_told else "FAIL", *("FAIL" for _ in others)]
    assert [trial.state.name for trial in searched.study.trials] == states
    assert SearchResult(searched).best_model == ("the second" if is_told else "the first")


def test_ctrl_c_while_a_failure_is_recorded_leaves_no_trial_running(monkeypatch):
    searched = trials()
    handed = searched.next()
    monkeypatch.setattr(optuna.Trial, "set_user_attr", raises_interrupt)
    with pytest.raises(KeyboardInterrupt):
        searched.failed(handed, "it is no use")
    searched.cut_short("It was interrupted.")
    assert searched.study.trials[0].state.name == "FAIL"


def test_no_trial_is_begun_after_the_time_and_those_in_hand_can_be_cut_short():
    searched = trials(timeout_s=1e-9)
    assert searched.next() is None
    searched = trials()
    searched.next()
    searched.cut_short("It was interrupted.")
    assert searched.study.trials[0].user_attrs["error"] == "It was interrupted."


def test_a_build_that_raises_is_a_failure_and_the_next_one_is_asked_for():
    def build(trial):
        if trial.number == 0:
            raise RuntimeError("no such model")
        if trial.number == 1:
            raise optuna.TrialPruned
        return built(trial)

    searched = trials(build=build)
    assert searched.next().trial.number == 2
    assert [(ended.state, ended.error) for ended in searched.ended] == [
        ("FAIL", "RuntimeError: no such model"),
        ("PRUNED", ""),
    ]
    assert searched.num_left == 0


def test_the_first_one_may_be_built_before_it_is_taken():
    numbers = []

    def build(trial):
        numbers.append(trial.number)
        if trial.number == 0:
            raise RuntimeError("no such model")
        return built(trial)

    searched = trials(build=build, most=3)
    assert searched.prepare()
    assert searched.prepare(), "it waits"
    assert (numbers, searched.num_left) == ([0, 1], 2)
    assert searched.next().trial.number == 1
    assert searched.next().trial.number == 2
    assert (searched.next(), searched.prepare(), searched.num_left) == (None, False, 0)


def test_the_best_model_is_made_of_what_workers_send():
    searched = trials(build=lambda _: TrialSpec(work=None, model="the model with {}".format))
    first, second = searched.next(), searched.next()
    searched.done(second, done(second, 0.5, parts="5"))
    searched.done(first, done(first, 0.4, parts=None))
    assert searched.best == (1, 0.5, "the model with 5")


def test_what_no_trial_of_this_search_can_be_ends_it():
    searched = trials(build=lambda _: check_built(Ridge()))
    with pytest.raises(OtherKindError, match="Say how estimators are scored"):
        searched.next()
    searched.cut_short("The search ended.")
    assert [ended.state for ended in searched.ended] == ["FAIL"]


def test_a_metric_that_no_trial_will_have_ends_the_search_before_one_starts():
    searched = trials(build=lambda trial: replace(built(trial), scores=["loss", "val_score"]))
    with pytest.raises(NoMetricError, match=r"no score 'score' .* there are loss, val_score. Did you mean 'val_score'"):
        searched.next()


def test_a_metric_goes_by_the_name_under_which_it_is_reported():
    searched = trials(build=lambda trial: replace(built(trial), scores=["loss", "step"]))
    searched._metric = "step_metric"  # as `step` is the number of a step
    assert searched.next().number == 0


def test_a_trial_without_the_metric_that_others_have_fails_by_itself():
    scores = iter([["score"], ["loss"], None])
    searched = trials(build=lambda trial: replace(built(trial), scores=next(scores)))
    first = searched.next()
    searched.done(first, done(first, 0.5))
    assert searched.next().number == 2, "where scores show in training only"
    assert [ended.error[:32] for ended in searched.ended if ended.state == "FAIL"] == [
        "ValueError: There is no score 's"
    ]


def test_what_is_no_sampler_pruner_storage_or_name_is_refused():
    for wrong in ({"pruner": 3}, {"storage": 3}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} is 3; pass"):
            opened(**wrong)
    with pytest.raises(TypeError, match=r"sampler is 'random'; pass one of optuna\.samplers"):
        opened("random")
    with pytest.raises(ValueError, match="study_name is ''"):
        opened(study_name="")


@pytest.mark.parametrize(("mode", "values", "best", "kept"), [("max", [1, 3, 2], 1, [3]), ("min", [4, 2, 1], 2, [1])])
def test_weights_are_taken_at_the_best_epoch_that_beats_the_others(mode, values, best, kept):
    taken = []

    class Ordered:
        to_beat = 2.0

    Ordered.mode = mode
    found = BestEpoch(Ordered())
    for epoch, value in enumerate(values):
        found.epoch_ended(epoch, value, lambda: taken.append(found.value) or taken)
    assert (found.epoch, found.value) == (best, values[best])
    assert taken == kept
