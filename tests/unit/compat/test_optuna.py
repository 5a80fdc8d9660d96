"""Private parts of Optuna."""

from __future__ import annotations

import pytest

from dask_train.compat.optuna import num_grid_points, take_up_trial

optuna = pytest.importorskip("optuna")


def test_a_trial_that_is_taken_up():
    study = optuna.create_study()
    x = study.ask().suggest_float("x", 0, 1)
    (known,) = study.get_trials()
    trial = take_up_trial(study, known)
    assert trial.number == 0
    assert trial.suggest_float("x", 0, 1) == x
    study.tell(trial, 0.5)
    assert study.best_value == 0.5


def test_points_of_a_grid():
    samplers = optuna.samplers
    assert num_grid_points(samplers.GridSampler({"a": [1, 2, 3], "b": [1, 2]})) == 6
    assert num_grid_points(samplers.RandomSampler()) is None
