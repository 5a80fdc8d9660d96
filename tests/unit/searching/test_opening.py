"""Optuna's study of a search: made, opened again, or given; and what is refused of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna")

from dask_train.searching.opening import open_study, points_left  # noqa: E402 - where there is Optuna

NOTHING = {"direction": None, "sampler": None, "pruner": None, "storage": None, "study_name": None, "seed": 0}


def opened(study=None, **settings):
    return open_study(study, **{**NOTHING, **settings})


def test_a_new_one_follows_the_seed_and_prunes_nothing():
    first, again, other = opened(), opened(), opened(seed=1)
    assert first.direction.name == "MAXIMIZE"
    assert isinstance(first.pruner, optuna.pruners.NopPruner)
    drawn = [study.ask().suggest_float("x", 0, 1) for study in (first, again, other)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"sampler": "tpe"}, TypeError, r"sampler is 'tpe'; pass one of optuna\.samplers"),
        ({"pruner": 3}, TypeError, r"pruner is 3; pass one of optuna\.pruners"),
        ({"study_name": ""}, ValueError, "study_name is ''"),
        ({"study_name": 7}, ValueError, "study_name is 7; it is a string"),
        ({"storage": 7}, TypeError, "storage is 7; pass a file"),
        ({"study": "mine"}, TypeError, "study is 'mine'"),
    ],
)
def test_what_is_none_of_optunas_is_refused(settings, error, says):
    with pytest.raises(error, match=says):
        opened(**settings)


def test_a_path_is_a_file_in_which_a_study_is_found_again(tmp_path):
    file = tmp_path / "study.db"
    opened(storage=file, study_name="mine").add_trial(optuna.trial.create_trial(value=1.0))
    assert file.exists()
    again = opened(storage=str(file), study_name="mine")
    assert [trial.value for trial in again.trials] == [1.0]
    with pytest.raises(ValueError, match=r"'mine' is there to maximize, and direction is 'minimize'.*another study_na"):
        opened(storage=file, study_name="mine", direction="minimize")


def test_a_study_that_is_continued_has_the_sampler_that_is_passed(tmp_path):
    study = {"storage": tmp_path / "study.db", "study_name": "mine"}
    opened(**study)
    own = opened(**study, sampler=(sampler := optuna.samplers.RandomSampler(seed=3)))
    assert own.sampler is sampler


@pytest.mark.parametrize(("below", "says"), [("", "which is a folder"), ("missing/study.db", "which does not exist")])
def test_a_path_that_can_be_no_file_is_refused_in_words(tmp_path, below, says):
    with pytest.raises(ValueError, match=says):
        opened(storage=str(tmp_path / below))


def test_a_path_may_be_below_the_users_own_folder_and_no_url(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    opened(storage="~/study.db")
    assert (tmp_path / "study.db").exists()
    with pytest.raises(ValueError, match=r"'sqlite:/study\.db' is a URL of which a Path"):
        opened(storage=Path("sqlite:///study.db"))


def test_a_url_and_a_storage_are_taken_as_they_are():
    storage = optuna.storages.InMemoryStorage()
    assert opened(storage=storage)._storage is storage
    assert opened(storage="sqlite://", study_name="mine").study_name == "mine"


def test_a_study_of_the_users_own_knows_all_that_it_needs():
    own = optuna.create_study(direction="minimize")
    assert opened(own) is own
    assert opened(own, direction="minimize") is own
    with pytest.raises(ValueError, match=r"There are study and sampler, storage; a study has its own"):
        opened(own, sampler=optuna.samplers.RandomSampler(), storage="sqlite://")
    with pytest.raises(ValueError, match=r"is there to minimize, and direction is 'maximize'\. Leave direction out"):
        opened(own, direction="maximize")


def test_several_objectives_are_refused():
    several = optuna.create_study(directions=["minimize", "maximize"])
    with pytest.raises(ValueError, match=r"has 2 objectives \(minimize, maximize\), and search follows one"):
        opened(several)


def test_optunas_words_are_as_loud_afterwards_as_before():
    before = optuna.logging.get_verbosity()
    opened()
    with pytest.raises(ValueError, match="which does not exist"):
        opened(storage="/no/such/folder/study.db")
    assert optuna.logging.get_verbosity() == before


def test_a_grid_ends_and_nothing_else_does():
    assert points_left(opened()) == math.inf
    grid = opened(sampler=optuna.samplers.GridSampler({"x": [0, 1], "y": [0, 1, 2]}, seed=0))
    grid.stop = lambda: None  # as a search has it: Optuna's own is for `optimize`
    for left in range(6, 0, -1):
        assert points_left(grid) == left
        trial = grid.ask()
        trial.suggest_int("x", 0, 1), trial.suggest_int("y", 0, 2)
        grid.tell(trial, 0.0)
    assert points_left(grid) == 0
    by_hand = opened(sampler=optuna.samplers.GridSampler({"x": [0, 1]}, seed=0))
    by_hand.add_trial(optuna.trial.create_trial(value=1.0))
    assert points_left(by_hand) == 2, "a trial of elsewhere is no point of the grid"


def test_a_trial_that_was_enqueued_is_beside_the_grid() -> None:
    study = opened(sampler=optuna.samplers.GridSampler({"x": [0, 1, 2]}, seed=0))
    study.enqueue_trial({"x": 1})
    assert points_left(study) == 4
    study.ask()
    assert points_left(study) == 3
