"""Runs in folders of logs, as the page compares them."""

from __future__ import annotations

import itertools
import json
import os
from types import SimpleNamespace

import dask
import pytest

from dask_train.dashboard import logged_runs
from dask_train.dashboard.compared import (
    compared_lines,
    compared_runs,
    differing_settings,
    names_of_scores,
    results,
    with_logged,
)
from dask_train.dashboard.logged_runs import MOST_RUNS, LoggedRuns, folders_of_setting
from dask_train.logging.base import Ending, Start
from dask_train.logging.tensorboard import TensorBoard


def log(folder, name, *losses, **params):
    """Log a run of fit."""
    sink = TensorBoard(folder).open(Start(run=name, params=params, time=100.0), None)
    place = {"role": "worker", "rank": 0, "attempt": 0, "num_steps": 4}
    scores = [{"loss": loss, "epoch": epoch, "time": 110.0 + 10 * epoch, **place} for epoch, loss in enumerate(losses)]
    others = [{**scores[0], "rank": 1}, {**scores[0], "role": "teacher"}, {**scores[0], "role": "chief", "rank": 2}]
    others = [{**score, "loss": 88.0, "train/loss": 88.0} for score in others]
    sink.write([{**scores[0], "step": 2, "loss": 77.0}, *({**score, "train/loss": 7.0} for score in scores), *others])
    sink.end(Ending(status="finished", reason="all epochs are trained", time=200.0))
    ledger = folder.parent / "ledger.json"
    ledger.write_text(json.dumps({"read": 500, "trained": 500}))
    sink.keep([ledger])


@pytest.fixture
def folder(tmp_path):
    log(tmp_path / "logs", "a", 3.0, 1.0, 2.0, epochs=3, teacher=1, lr=0.1)
    log(tmp_path / "logs", "b", 5.0, epochs=3, teacher=1, lr=0.2)
    (tmp_path / "logs" / "no run").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def logged(folder):
    runs = LoggedRuns()
    runs.read([folder])
    return runs


def test_a_run_in_a_log_is_compared_as_one_that_the_scheduler_knows(logged):
    runs, traces = with_logged([], {}, logged.runs)
    chosen = compared_runs(runs, traces, ["a", "b"])
    assert names_of_scores(chosen) == ["loss", "train/loss"], "those of whole epochs, and of the first role"
    assert compared_lines(chosen, "train/loss", over_time=False)[0]["ys"] == [[7.0, 7.0, 7.0], [7.0]]
    assert compared_lines(chosen, "loss", over_time=False)[0]["ys"] == [[3.0, 1.0, 2.0], [5.0]]
    assert compared_lines(chosen, "loss", over_time=True)[0]["xs"] == [[10.0, 20.0, 30.0], [10.0]]
    rows = dict(results(chosen, now=0.0))
    assert rows["state"][0] == "finished: all epochs are trained"
    assert rows["duration"] == ["1:40 min"] * 2
    assert rows["loss, lowest"] == ["1 at epoch 2", "5 at epoch 1"], "the first epoch ends at 1"
    assert (rows["rows trained"], rows["rows/s, mean"]) == (["500"] * 2, ["5"] * 2)
    assert differing_settings(chosen) == [("lr", ["0.1", "0.2"])]


def test_a_run_that_the_scheduler_knows_is_not_there_twice(logged):
    (known,) = [run for run in logged.runs if run.id == "a"]
    assert [run.id for run in with_logged([known], {}, logged.runs)[0]] == ["a", "b"]


def test_a_run_that_the_scheduler_knows_is_not_read(folder):
    runs = LoggedRuns()
    runs.read([folder], known={"a"})
    assert [run.id for run in runs.runs] == ["b"]


def test_a_long_run_that_grows_is_not_read_each_time(folder, monkeypatch):
    now = itertools.count(0.0, 2.0)
    monkeypatch.setattr(logged_runs, "time", SimpleNamespace(monotonic=lambda: next(now)))
    runs = LoggedRuns()
    runs.read([folder])
    before = set(runs.runs)
    log(folder, "a", 3.0)
    runs.read([folder])
    assert set(runs.runs) == before, "it took 2 s, and that was just now"
    for _ in range(40):
        next(now)
    runs.read([folder])
    assert set(runs.runs) != before


def test_what_is_new_is_read_and_what_was_read_is_kept(logged, folder, monkeypatch):
    before = {run.id: run for run in logged.runs}
    monkeypatch.setattr(logged_runs, "time", SimpleNamespace(monotonic=lambda: 1e12))
    log(folder, "c", 9.0)
    log(folder, "b", 4.0)  # goes on in another file
    logged.read([folder])
    after = {run.id: run for run in logged.runs}
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
    assert set(after) == {"a", "b", "c"}


def test_the_newest_runs_are_read_and_one_that_can_not_be_is_left_out(folder):
    (damaged,) = (folder / "a").glob("events*")
    damaged.write_bytes(b"\x02" + b"\0" * 11 + b"\xff\xff" + b"\0" * 4)
    for number in range(MOST_RUNS):
        log(folder, f"run {number}", 1.0)
        os.utime(folder / f"run {number}", (2e9 + number, 2e9 + number))
    os.utime(folder / "a", (3e9, 3e9))
    runs = LoggedRuns()
    runs.read([folder])
    assert {run.id for run in runs.runs} == {f"run {number}" for number in range(1, MOST_RUNS)}


@pytest.mark.parametrize(
    ("setting", "folders"), [(None, []), ("logs", ["logs"]), (["a", 3, "", "b"], ["a", "b"]), (3, [])]
)
def test_the_folders_are_those_of_the_configuration(setting, folders):
    with dask.config.set({"train.dashboard.logs": setting}):
        assert [str(each) for each in folders_of_setting()] == folders


def test_nothing_waits_for_the_folders(folder):
    runs = LoggedRuns()
    runs.look()
    assert runs._thread is None, "none are named"
    with dask.config.set({"train.dashboard.logs": str(folder)}):
        runs.look()
        assert runs._thread is not None
        runs._thread.join(60)
        assert len(runs.runs) == 2
        first = runs._thread
        runs.look()
        assert runs._thread is first, "that was just now"
