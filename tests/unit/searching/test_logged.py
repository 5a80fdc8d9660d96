"""A search as places of a log see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dask_train.logging.base import Ending, Logger, Score, Sink, Start
from dask_train.searching.logged import SearchLog, search_log


class Told(Logger, Sink):
    """Keeps what it is told, by whose sink it is."""

    place = "here"

    def __init__(self, of: str = "", told: list[Any] | None = None) -> None:
        self.of, self.told = of, [] if told is None else told

    def open(self, start: Start, parent: Sink | None) -> Sink:
        self.told.append((start.run, dict(start.params), getattr(parent, "of", None)))
        return Told(start.run, self.told)

    def write(self, scores: Sequence[Score]) -> None:
        self.told += [(self.of, dict(score)) for score in scores]

    def end(self, ending: Ending) -> None:
        self.told.append((self.of, ending.status, ending.reason, dict(ending.values)))

    def keep(self, files: Sequence[Path]) -> None:
        self.told.append((self.of, files))


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        (None, "finished", "all trials have ended"),
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt: "),
        (OSError("full"), "failed", "OSError: full"),
    ],
)
def test_every_trial_ends(failure: BaseException | None, status: str, reason: str) -> None:
    place = Told()
    log = SearchLog([place], "study", {"trials": 4, "timeout_s": None}, 10.0)
    log.begin(0, {"units": 8})
    log.write(0, {"loss": 1.0, "epoch": 0})
    log.trial_ended(0, "COMPLETE", params={}, value=1.0, why="")
    log.write(0, {"loss": 9.0, "epoch": 1})  # too late
    log.trial_ended(1, "FAIL", params={"units": 9}, value=None, why="ValueError: it can't be built")
    log.begin(2, {"units": 7})
    log.end(failure, None)
    assert place.told[0] == ("study", {"trials": 4}, None)
    assert sorted(map(repr, place.told[1:])) == sorted(
        map(
            repr,
            [
                ("trial-0", {"units": 8}, "study"),
                ("trial-0", {"loss": 1.0, "epoch": 0, "trial": 0}),
                ("trial-0", "finished", "complete", {"value": 1.0}),
                ("trial-1", {"units": 9}, "study"),
                ("trial-1", "failed", "ValueError: it can't be built", {}),
                ("trial-2", {"units": 7}, "study"),
                ("trial-2", "stopped", "the search was cut short", {}),
                ("study", status, reason, {}),
            ],
        )
    )


@pytest.mark.parametrize("can_be_made", [True, False])
def test_a_best_model_that_can_not_be_written_is_no_end_of_the_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], can_be_made: bool
) -> None:
    def broken(*given: Any) -> None:
        raise ValueError("no such layer")

    monkeypatch.setattr("dask_train.searching.logged.saved", broken)
    if not can_be_made:
        monkeypatch.setattr("dask_train.searching.logged.whole", broken)
    place = Told()
    SearchLog([place], "study", {}, 10.0).end(None, (3, 0.5, "the model"))
    assert place.told[1:] == [
        ("study", "finished", "all trials have ended", {"best_value": 0.5, "best_trial": 3.0}),
        ("study", []),
    ]
    assert "Not all files for log= could be written: ValueError: no such layer" in capsys.readouterr().err


def test_no_place_is_no_log() -> None:
    with search_log([], "study", {}) as log:
        assert log is None


def test_a_search_that_can_not_begin_ends_its_log_once() -> None:
    place = Told()
    with pytest.raises(OSError, match="gone"), search_log([place], "study", {}) as log:
        raise OSError("gone")
    assert log is not None
    log.end(None, None)
    assert place.told[1:] == [("study", "failed", "OSError: gone", {})]
