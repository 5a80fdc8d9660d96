"""Runs as folders of event files, trials in folders of their search."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_train.logging.base import Ending, Start
from dask_train.logging.tensorboard import TensorBoard


def test_a_search_with_a_trial(tmp_path, events):
    logger = TensorBoard(tmp_path)
    search = logger.open(Start(run="s", params={"trials": 2}, time=1.0), None)
    trial = logger.open(Start(run="trial-0", params={"units": 8}, time=1.0), search)
    trial.write([{"epoch": 0, "num_steps": 10, "loss": 1.0, "time": 1.5}])
    trial.write([])
    trial.write([{"epoch": 1, "num_steps": 20, "loss": 0.5, "time": 2.5}])
    trial.end(Ending(status="failed", reason="no memory", time=3.0, values={"value": 0.25}))
    (tmp_path / "model.keras").write_text("the model")
    search.keep([tmp_path / "model.keras"])
    (file,) = (tmp_path / "s" / "trial-0").iterdir()
    told = [value for event in events(file) for value in event.summary.value]
    texts = {value.tag: value.tensor.string_val[0].decode() for value in told if value.tensor.string_val}
    numbers = [value.simple_value for value in told if value.tag not in texts]
    assert [number for number in numbers if number in (1.0, 0.5)] == [1.0, 0.5], "each once"
    assert [value.tag for value in told if value.simple_value == 0.25] == ["value"]
    assert "| units | 8 |" in texts["parameters"]
    assert texts["ended"] == "failed: no memory"
    assert (tmp_path / "s" / "model.keras").read_text() == "the model"


def test_parameters_that_could_not_be_written_are_written_the_next_time(tmp_path, events, monkeypatch):
    search = TensorBoard(tmp_path).open(Start(run="s", params={}, time=1.0), None)
    trial = TensorBoard(tmp_path).open(Start(run="trial-0", params={"units": 8}, time=1.0), search)

    def fails(*given):
        raise OSError("no space left")

    with monkeypatch.context() as full:
        full.setattr("dask_train.logging.tensorboard.write_start", fails)
        with pytest.raises(OSError, match="no space left"):
            trial.write([{"loss": 1.0}])
    trial.write([])
    (file,) = (tmp_path / "s" / "trial-0").iterdir()
    tags = [value.tag for event in events(file) for value in event.summary.value]
    assert tags[-2:] == ["_hparams_/session_start_info", "loss"]


def test_nothing_is_made_before_something_comes(tmp_path):
    TensorBoard(tmp_path).open(Start(run="s", params={}, time=1.0), None)
    assert list(tmp_path.iterdir()) == []


def test_a_url_is_refused():
    with pytest.raises(ValueError, match="'s3://bucket/runs'; event files grow, so pass a local folder"):
        TensorBoard("s3://bucket/runs")
    with pytest.raises(ValueError, match="'s3:/bucket/runs' is a URL of which a Path has kept"):
        TensorBoard(Path("s3://bucket/runs"))


def test_a_folder_may_be_below_the_users_own(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert TensorBoard("~/runs").folder == Path("/home/me/runs")
