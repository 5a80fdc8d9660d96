"""What a verb tells all places: a run's scores, those of trials, how they ended, and files once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_train.logging.base import Ending, Logger, ModelSink, Sink, Start
from dask_train.logging.log import FunctionLogger, Log, check_log

DONE = Ending(status="finished", reason="done", time=3.0)


class Notes(Logger, Sink):
    """Notes what it is told, by run."""

    place = "notes"

    def __init__(self, notes: list[Any] | None = None, run: str = "", parent: str | None = None) -> None:
        self.notes, self.run = [] if notes is None else notes, run
        if run:
            self.notes.append((run, "begins in", parent))

    def open(self, start: Start, parent: Sink | None) -> Sink:
        return Notes(self.notes, start.run, getattr(parent, "run", None))

    def write(self, scores: Any) -> None:
        self.notes += [(self.run, score["loss"]) for score in scores]

    def end(self, ending: Ending) -> None:
        self.notes.append((self.run, ending.reason))

    def keep(self, files: Any) -> None:
        self.notes.append((self.run, [file.read_text() for file in files]))


@pytest.fixture
def log(no_leaks):
    with no_leaks():
        made = Log([Notes(), Notes()], Start(run="search", params={}, time=0.0), 20.0)
        yield made
        made.wait_until_written()


def notes(log):
    """What both places have noted, which is the same."""
    log.wait_until_written()
    first, second = (sink.notes for sink in log._sinks)
    assert first == second
    return first


def test_trials_are_runs_within_that_of_the_search(log):
    for trial in (0, 1):
        log.begin_trial(trial, f"trial-{trial}", {"units": trial})
    log.write([{"loss": 2.0}], trial=1)
    log.write([{"loss": 3.0}], trial=0)
    log.end(Ending(status="failed", reason="no memory", time=1.0), trial=1)
    log.write([{"loss": 1.0}])
    with pytest.raises(KeyError):
        log.write([{"loss": 0.0}], trial=1)
    log.end(DONE)
    found = notes(log)
    assert found[:3] == [
        ("search", "begins in", None),
        ("trial-0", "begins in", "search"),
        ("trial-1", "begins in", "search"),
    ]
    assert [note for note in found[3:] if note[0] == "trial-1"] == [("trial-1", 2.0), ("trial-1", "no memory")]
    assert [note for note in found[3:] if note[0] == "trial-0"] == [("trial-0", 3.0)]
    assert [note for note in found[3:] if note[0] == "search"] == [("search", 1.0), ("search", "done")]


def test_files_are_kept_once_and_gone_then(log):
    folders = []

    def save(folder: Path) -> list[Path]:
        folders.append(folder)
        (folder / "model").write_text("the model")
        return [folder / "model"]

    log.end(DONE)
    log.deliver(save)
    log.deliver(save)
    assert len(folders) == 1
    assert not folders[0].exists()
    assert notes(log)[-1] == ("search", ["the model"])


def test_files_that_cannot_be_written_are_told_and_those_before_them_kept(log):
    told = []
    log.tell = told.append

    def save(folder: Path) -> Iterator[Path]:
        (folder / "model").write_text("the model")
        yield folder / "model"
        raise OSError("no space left")

    log.end(DONE)
    log.deliver(save)
    assert notes(log)[-1] == ("search", ["the model"])
    assert told == ["Not all files for log= could be written: OSError: no space left"]


def test_without_a_folder_for_files_places_keep_none(log, monkeypatch):
    def no_folder(**options: Any) -> None:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("dask_train.logging.log.TemporaryDirectory", no_folder)
    told = []
    log.tell = told.append
    log.deliver(lambda folder: [folder])
    assert notes(log)[-1] == ("search", [])
    assert "no usable temporary directory" in told[0]


class Models(Notes, ModelSink):
    """Notes models, too."""

    def open(self, start: Start, parent: Sink | None) -> Sink:
        return Models(self.notes, start.run, getattr(parent, "run", None))

    def keep_model(self, model: Any, example: Any) -> None:
        self.notes.append((self.run, model))


@pytest.mark.parametrize("model", [None, "what was trained"])
def test_a_model_goes_to_places_with_a_format_for_it_after_the_files(no_leaks, model):
    plain, keeping = Notes(), Models()
    with no_leaks():
        log = Log([plain, keeping], Start(run="run", params={}, time=0.0), 20.0)
        log.deliver(lambda folder: [], model)
        log.wait_until_written()
    assert plain.notes[1:] == [("run", [])]
    assert keeping.notes[1:] == [("run", []), *([("run", model)] if model else [])]


def test_what_a_log_may_be():
    place = Notes()
    assert check_log(None) == []
    assert check_log(place) == check_log([place]) == check_log((place,)) == [place]
    made, other = check_log([print, place])
    assert isinstance(made, FunctionLogger)
    assert other is place


@pytest.mark.parametrize("log", ["runs", [Notes(), 3], Notes, [FunctionLogger]])
def test_what_a_log_may_not_be(log):
    with pytest.raises(TypeError, match=r"log has .*; pass dt.logging.MLflow\(...\), dt.logging.TensorBoard\(folder\)"):
        check_log(log)


def test_places_get_no_secrets():
    start = Start(run="r", params={"checkpoint": "s3://key:hunter2@bucket/x", "epochs": 3}, time=0.0)
    assert start.params == {"checkpoint": "s3://***@bucket/x", "epochs": 3}
