"""Where a search is kept: its folders of trials, its best model; what goes on after a death is in test_going_on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

optuna = pytest.importorskip("optuna")

from dask_train.checkpoint.policy import Checkpoint  # noqa: E402 - where there is Optuna
from dask_train.data.columns import Columns  # noqa: E402
from dask_train.errors import CheckpointError  # noqa: E402
from dask_train.fitting.roles.entry import KerasTrialRole  # noqa: E402
from dask_train.fitting.spec import FitTask  # noqa: E402
from dask_train.searching import best_model  # noqa: E402
from dask_train.searching.going_on import SearchState, check_goes_on  # noqa: E402
from dask_train.searching.kept import _OF_A_TRIAL, kept_search  # noqa: E402

ARGUMENTS = {"metric": "score", "direction": "minimize"}
SAMPLER = optuna.samplers.RandomSampler(0)


def opened(folder: Path, *, resume: bool = False, **settings: Any) -> Any:
    return kept_search(Checkpoint(folder, **settings), ARGUMENTS, SearchState, resume=resume, of_trials=True)


def state(best: tuple[int, float] | None = None, **more: Any) -> SearchState:
    given = {"study_name": "mine", "trials": [], "sampler": SAMPLER, "ending": None, "places": {}}
    given |= {"unfinished": [], "num_begun": 1, "is_stopped": False, "ended": [], "warnings": {}}
    return SearchState(**{**given, "best": best, **more})


def test_what_was_kept_is_what_the_next_call_goes_on_with(tmp_path):
    with opened(tmp_path / "kept") as kept:
        assert (kept.state, kept.best_model) == (None, None)
        kept.save(state(num_begun=3), None)
    with opened(tmp_path / "kept", resume=True) as again:
        assert (again.state.study_name, again.state.num_begun, again.best_model) == ("mine", 3, None)


def test_the_best_model_is_written_once_and_outlives_later_checkpoints(tmp_path, monkeypatch):
    written = []
    keep = best_model.keep
    monkeypatch.setattr(best_model, "keep", lambda folder, model: (written.append(model), keep(folder, model)))
    with opened(tmp_path / "kept", keep=1) as kept:
        for best, model in (((2, 0.5), "two"), ((2, 0.5), "two"), ((4, 0.25), "four"), ((4, 0.25), "four")):
            kept.save(state(best), model)
        for number in range(3):
            kept.save(state((4, 0.25), num_begun=number), "four")
    assert written == ["two", "four"]
    with opened(tmp_path / "kept", resume=True, keep=1) as again:
        assert (again.state.best, again.best_model) == ((4, 0.25), "four")
        again.save(state((4, 0.25)), again.best_model)
    assert written == ["two", "four"], "the next call knows which one it is"


def test_each_start_of_a_trial_has_a_folder_of_its_own(tmp_path):
    with opened(tmp_path / "kept", keep=3) as kept:
        names = [kept.folders.new(number, before) for number in (1, 1, 10**9) for before in (0, 1)]
        assert len(set(names)) == 6
        assert all(_OF_A_TRIAL.fullmatch(name) for name in names)
        task = kept.folders.with_checkpoints(
            KerasTrialRole(FitTask(header={}, arrays=[], columns=Columns(features=0))), names[0]
        ).task
        assert task.resume
        policy = task.checkpoint
        assert (policy.keep, policy.best, policy.mode, policy.restore_best) == (3, "score", "min", False)
        assert policy.url == kept.folders.url_of(names[0]) == f"{kept.url}/{names[0]}"


@pytest.mark.parametrize("how", ["a new search begins", "the search ends"])
def test_folders_of_trials_are_removed_and_nothing_else_is(tmp_path, how):
    root = tmp_path / "kept"
    with opened(root) as kept:
        kept.save(state(), None)
        mine = [root / kept.folders.new(number, 0) for number in (1, 2)]
    others = [root / name for name in ("trial-mine", "trial-1-0-abcdef01", "model-00000001-0-abcdef01", "notes")]
    for folder in (*mine, *others):
        folder.mkdir()
        (folder / "file").write_text("x")
    with opened(root, resume=how == "the search ends") as kept:
        assert [folder.exists() for folder in mine] == [how == "the search ends"] * 2
        kept.end()
        kept.end()  # again does no harm
    assert not any(folder.exists() for folder in mine)
    assert all((folder / "file").exists() for folder in others)


def test_a_folder_that_is_gone_already_keeps_no_other(tmp_path):
    root = tmp_path / "kept"
    with opened(root) as kept:
        there = kept.folders.new(1, 0)
        (root / there).mkdir()
        kept.folders.remove(["trial-00000009-0-abcdef01", there])
    assert not (root / there).exists()


def test_a_sampler_that_can_be_kept_is_taken(tmp_path):
    study = optuna.create_study(sampler=SAMPLER)
    with opened(tmp_path / "kept") as kept:
        check_goes_on(study, None, kept.state)
        study.sampler = optuna.samplers.RandomSampler(0)
        study.sampler.cannot = (number for number in ())
        with pytest.raises(
            TypeError, match=r"sampler is a RandomSampler, which can't be pickled: .* leave checkpoint="
        ):
            check_goes_on(study, None, kept.state)


def test_a_state_of_another_kind_or_of_other_arguments_is_refused(tmp_path):
    @dataclass(kw_only=True)
    class Counts:
        kind: ClassVar[str] = "counts"

        seen: list[int]
        best: tuple[int, float] | None = None

    def counted(*, resume: bool, **arguments: Any) -> Any:
        return kept_search(Checkpoint(tmp_path / "kept"), arguments, Counts, resume=resume)

    with counted(resume=False, seed=1) as first:
        first.check_same({"data": "3 rows"})
        first.save(Counts(seen=[1, 2]), None)
    with counted(resume=True, seed=1) as again:
        assert again.state == Counts(seen=[1, 2])
        with pytest.raises(CheckpointError, match="data was '3 rows', and is '4 rows'"):
            again.check_same({"data": "4 rows"})
    with pytest.raises(CheckpointError, match="seed was 1, and is 2"), counted(resume=True, seed=2):
        pass
    with pytest.raises(CheckpointError, match=r"has the files counts\.pickle, is none of dt\.search"):
        opened(tmp_path / "kept", resume=True).__enter__()


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    with opened(tmp_path / "kept") as first, monkeypatch.context() as later:
        later.setattr("dask_train.searching.kept.FORMAT", 2)
        first.save(state(), None)
    with (
        pytest.raises(CheckpointError, match="The search has format 2, and this dask-train reads up to 1"),
        opened(tmp_path / "kept", resume=True),
    ):
        pass
