"""Samplers and pruners of Optuna see the same calls, in the same order, as in Optuna's own loop."""

from __future__ import annotations

import functools

import optuna
import pytest

from dask_train.fitting.model_kind import TrialSpec
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.worker import TrialDone

OF_SAMPLERS = (
    "before_trial",
    "infer_relative_search_space",
    "sample_relative",
    "sample_independent",
    "after_trial",
)


def conditional(trial):
    """The scores of the epochs of a trial that has other parameters with another model."""
    kind = trial.suggest_categorical("kind", ["linear", "tree", "wrong"])
    if kind == "wrong":
        raise RuntimeError("no such model")
    if kind == "tree":
        best = trial.suggest_int("depth", 1, 4) / 4 * (1 if trial.suggest_float("rate", 0, 1) > 0.3 else 0.5)
    else:
        best = trial.suggest_float("alpha", 1e-3, 1.0, log=True)
    if trial.number == 5:
        raise optuna.TrialPruned
    return [best * epoch / 3 for epoch in (1, 2, 3)]


def of_grid(trial):
    depth = trial.suggest_int("depth", 1, 6)
    if depth == 2:
        raise RuntimeError("no such model")
    return [depth / 3, float("nan"), depth / 2] if depth == 3 else [depth / 2]


CASES = {
    "random": (conditional, lambda: optuna.samplers.RandomSampler(3), ()),
    "TPE": (conditional, lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=4), ()),
    "TPE of groups": (
        conditional,
        lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=4, multivariate=True, group=True),
        ({"kind": "tree", "depth": 4},),
    ),
    "QMC": (of_grid, lambda: optuna.samplers.QMCSampler(seed=0), ({"depth": 3},)),
    "brute force": (of_grid, lambda: optuna.samplers.BruteForceSampler(seed=0), ({"depth": 1},)),
    "grid": (of_grid, lambda: optuna.samplers.GridSampler({"depth": [1, 2, 3, 4]}, seed=0), ()),
    "grid and another trial": (
        of_grid,
        lambda: optuna.samplers.GridSampler({"depth": [1, 2, 3, 4]}, seed=0),
        ({"depth": 1}, {"depth": 6}),
    ),
}
PRUNERS = {
    "none": optuna.pruners.NopPruner,
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2),
    "threshold": lambda: optuna.pruners.ThresholdPruner(lower=0.2),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=3, reduction_factor=2),
}


def recorded(case, pruner):
    """A study, and the calls of its sampler and pruner so far."""
    _, make, enqueued = CASES[case]
    study = optuna.create_study(study_name="one", direction="maximize", sampler=make(), pruner=PRUNERS[pruner]())
    for params in enqueued:
        study.enqueue_trial(params)
    calls = []

    def told(method, of_study, trial, *more):
        known = [(each.number, each.state.name, each.values) for each in study.get_trials(deepcopy=False)]
        steps = {epoch: repr(value) for epoch, value in trial.intermediate_values.items()}  # NaN is not equal to itself
        calls.append((method.__name__, trial.number, trial.state.name, trial.params, steps, known, repr(more)))
        return method(of_study, trial, *more)

    for name in OF_SAMPLERS:
        setattr(study.sampler, name, functools.partial(told, getattr(study.sampler, name)))
    study.pruner.prune = functools.partial(told, study.pruner.prune)
    return study, calls


def optimized(study, scores_of, trials):
    """Go through trials as Optuna does."""

    def objective(trial):
        scores = scores_of(trial)
        for epoch, score in enumerate(scores):
            trial.report(score, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return max(score for score in scores if score == score)

    study.optimize(objective, n_trials=trials, catch=(RuntimeError,))


def searched(study, scores_of, trials):
    """Go through trials as a search does that trains one at a time."""

    def spec_of(trial):
        return TrialSpec(work=scores_of(trial), model=lambda parts: parts)

    search = OptunaStudy(study, spec_of, metric="score", most=trials, timeout_s=None)
    while (handed := search.next()) is not None:
        scores = handed.request.work
        for epoch, score in enumerate(scores):
            if search.scored(handed, {"epoch": epoch, "score": score}):
                break
        best = max(score for score in scores if score == score)
        search.done(handed, TrialDone(number=handed.trial.number, value=best, epoch=1, parts=("", []), seconds=1.0))
    search.close()


@pytest.mark.parametrize("pruner", PRUNERS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # of pruners, in both loops
def test_calls_are_those_of_optunas_own_loop(case, pruner):
    (one, wanted), (other, found) = recorded(case, pruner), recorded(case, pruner)
    optimized(one, CASES[case][0], 14)
    searched(other, CASES[case][0], 14)
    assert found == wanted
    assert [(each.state, each.params, each.value) for each in other.trials] == [
        (each.state, each.params, each.value) for each in one.trials
    ]
