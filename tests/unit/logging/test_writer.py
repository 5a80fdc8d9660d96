"""A place that can't be written to: the run goes on, what it missed is sent later, or said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dask_train.logging import writer
from dask_train.logging.base import Ending, Logger, Score, Sink, Start
from dask_train.logging.log import Log, check_log

ENDING = Ending(status="finished", reason="done", time=3.0)


class Place(Logger, Sink):
    """Takes nothing until it is up."""

    place = "a place"

    def __init__(self, *, up: bool = True) -> None:
        self.up = threading.Event()
        if up:
            self.up.set()
        self.taken: list[Any] = []
        self.batches: list[int] = []
        self._pending: list[Score] = []
        self.refused = threading.Event()

    def open(self, start: Start, parent: Sink | None) -> Sink:
        self.taken.append((start.run, dict(start.params), parent is not None))
        return self

    def _check(self) -> None:
        if not self.up.is_set():
            self.refused.set()
            raise ConnectionError("refused.")

    def write(self, scores: Sequence[Score]) -> None:
        self._pending += scores
        self._check()
        self.batches.append(len(self._pending))
        self.taken += [score["loss"] for score in self._pending]
        self._pending.clear()

    def end(self, ending: Ending) -> None:
        self._check()
        self.taken.append(ending.status)

    def keep(self, files: Sequence[Path]) -> None:
        self._check()
        self.taken.append([file.read_text() for file in files])


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PAUSE_S", 0.02)
    monkeypatch.setattr(writer, "BATCH_S", 0.02)


def opened(*places: Logger, timeout_s: float = 20.0) -> tuple[Log, list[str]]:
    told: list[str] = []
    log = Log(check_log(list(places)), Start(run="fit-1", params={"epochs": 2}, time=1.0), timeout_s)
    log.tell = told.append
    return log, told


def save(folder: Path) -> list[Path]:
    path = folder / "ledger.json"
    path.write_text("{}")
    return [path]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dask-train-logs")]


def test_everything_comes_in_order_and_no_thread_stays() -> None:
    place = Place()
    log, told = opened(place)
    for loss in range(100):
        log.write([{"loss": loss}])
    log.end(ENDING)
    log.deliver(save)
    log.deliver(save)  # as a second `run.result()` does
    assert place.taken == [("fit-1", {"epochs": 2}, False), *range(100), "finished", ["{}"]]
    assert len(place.batches) < 100, "batched"
    assert (told, threads()) == ([], [])


def test_what_a_place_missed_is_sent_when_it_is_there_again() -> None:
    place, other = Place(up=False), Place()
    log, told = opened(place, other)
    log.write([{"loss": 1}])
    assert place.refused.wait(60)
    log.write([{"loss": 2}])
    log.end(ENDING)
    place.up.set()
    log.wait_until_written()
    assert place.taken[1:] == other.taken[1:] == [1, 2, "finished"]
    assert told == [
        "a place takes nothing now: ConnectionError: refused. The run continues, and tries it again.",
        "a place takes what it is sent again.",
    ]
    assert threads() == []


def test_what_it_never_took_is_said() -> None:
    place = Place(up=False)
    log, told = opened(place, timeout_s=0.1)
    log.write([{"loss": 1}, {"loss": 2}])
    assert place.refused.wait(60)
    log.write([{"loss": 3}])
    log.end(ENDING)
    log.wait_until_written()
    assert told[1:] == ["a place never took 3 scores: ConnectionError: refused."]
    assert threads() == []


def test_a_place_that_hangs_is_not_waited_for() -> None:
    hangs, place = threading.Event(), Place()
    place.write = lambda scores: hangs.wait(60) and None  # type: ignore[method-assign,assignment]
    log, told = opened(place, timeout_s=0.1)
    log.write([{"loss": 1}])
    log.end(ENDING)
    log.wait_until_written()
    assert told == ["a place is still being written to: it takes longer than this waits."]
    hangs.set()


def test_a_trial_is_nested_in_its_search() -> None:
    place = Place()
    log, _ = opened(place)
    log.begin_trial(4, "trial-4", {"units": 8})
    log.write([{"loss": 1}], 4)
    log.end(ENDING, 4)
    log.end(ENDING)
    log.wait_until_written()
    assert place.taken == [
        ("fit-1", {"epochs": 2}, False),
        ("trial-4", {"units": 8}, True),
        1,
        "finished",
        "finished",
    ]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_any_function_is_called_with_each_score_once(error: type[BaseException]) -> None:
    seen: list[Any] = []

    def at_times(score: dict[str, Any]) -> None:
        if score["loss"] == 2 and not raised:
            raised.append(score)
            raise error
        seen.append(score["loss"])

    raised: list[Any] = []
    log, told = opened(*check_log(at_times))
    log.write([{"loss": 1}, {"loss": 2}, {"loss": 3}])
    log.end(ENDING)
    log.wait_until_written()
    assert seen == [1, 2, 3]
    assert told[0].startswith(f"the function at_times takes nothing now: {error.__name__}.")


@pytest.mark.parametrize("wrong", [3, "runs", Place, [print, None]])
def test_what_is_no_place(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"log has .*pass dt\.logging\.MLflow"):
        check_log(wrong)


def test_none_is_no_log(tmp_path: Path) -> None:
    call: Callable[[Any], Any] = print
    assert check_log(None) == []
    assert [logger.place for logger in check_log((call,))] == ["the function print"]
    assert not list(tmp_path.iterdir())
