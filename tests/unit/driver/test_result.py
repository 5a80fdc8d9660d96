"""What a run leaves: values, files and a card of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dask_train.data.ledger import Ledger
from dask_train.driver.result import Attempt, Result, leave_result


def result(**more):
    return Result(
        **{
            "results": {"worker": [1, 2], "ps": [None]},
            "scores": [],
            "ledger": Ledger(lines=(), read=0, trained=0, repeated=0, dropped=0),
            "attempts": [],
            "stop_reason": "",
            "run_id": "train-1",
            **more,
        }
    )


def test_how_long_it_took_is_from_its_first_start_to_its_last_end():
    attempts = [Attempt(number=0, started=10.0, ended=14.0), Attempt(number=1, started=15.0, ended=20.5)]
    assert result(attempts=attempts).seconds == 10.5
    assert result().seconds == 0.0
    assert result(attempts=[Attempt(number=0, started=10.0, ended=9.0)]).seconds == 0.0, "a clock was set"


def test_its_card_says_what_counts():
    attempts = [
        Attempt(number=0, started=10.0, ended=14.0, places={"worker/0": "tcp://a"}, reason="worker 0 is lost."),
        Attempt(number=1, started=15.0, ended=20.0),
    ]
    scores = [
        {"role": "worker", "rank": 0, "time": 1.0, "loss": 2.0},
        {"role": "worker", "rank": 0, "time": 2.0, "loss": 0.5},
        {"role": "worker", "rank": 1, "time": 3.0, "loss": 9.0},
    ]
    found = result(scores=scores, attempts=attempts, stop_reason="loss is 0.5 < 1", notices=["a scorer was lost"])
    text = repr(found)
    for words in ("train-1", "2 worker, 1 ps", "0.5", "loss is 0.5 &lt; 1", "a scorer was lost"):
        assert words in found._repr_html_()
    assert "train-1" in text
    assert "<svg" in found._repr_html_()
    assert "worker 0 is lost." in found._repr_html_()
    assert "10.0 s, in 2 attempts" in found._repr_html_()
    assert "attempts" not in result(attempts=attempts[:1])._repr_html_()


def test_an_attempt_that_goes_on():
    text = repr(Attempt(number=3, started=10.0, places={"worker/0": "tcp://a", "worker/1": "tcp://b"}))
    assert "still running" in text
    assert "2 roles" in text
    assert "1 role" in repr(Attempt(number=3, started=10.0, ended=11.0, places={"worker/0": "tcp://a"}))


def test_its_ledger_is_written(tmp_path):
    (path,) = result()._save(tmp_path)
    assert path.parent == tmp_path
    told = json.loads(path.read_text())
    assert (told["read"], told["trained"], told["lines"]) == (0, 0, [])


def reports(*losses, role="worker", rank=0):
    return [{"role": role, "rank": rank, "time": 10.0 + at, "loss": loss} for at, loss in enumerate(losses)]


def test_what_functions_reported_is_its_history_and_is_drawn(tmp_path):
    scores = [*reports(2.0, 0.5), *reports(9.0, rank=1), *reports(0.7, role="scorer")]
    places = {"worker/0": "tcp://a:1"}
    found = result(scores=scores, attempts=[Attempt(number=0, started=10.0, ended=14.0, places=places)])
    assert found.history == {"loss": [2.0, 0.5], "scorer/loss": [0.7]}
    loss, scorer = found.plot().axes
    assert (loss.get_title(), scorer.get_title()) == ("loss", "scorer/loss")
    assert [line.get_xdata().tolist() for line in (*loss.lines, *scorer.lines)] == [[1, 2], [1]]
    page = found.report(tmp_path / "page.html").read_text()
    for words in ("train-1, 2 reports", "its roles returned", "scorer/loss", "worker 0"):
        assert words in page
    assert "Loss over seconds: 2 scores" in page, "no others are of that curve"
    assert "scorer/loss" in repr(found), "the last of what was reported"
    assert "No scores yet" in result().report(tmp_path / "page.html").read_text(), "of a run that reported nothing"


def test_what_only_other_results_have_is_told():
    assert not hasattr(result(), "model")
    with pytest.raises(AttributeError, match=r"no attribute 'model': it is what a function returns, as in result\.re"):
        result().model  # noqa: B018
    with pytest.raises(AttributeError, match=r"A Result of dt\.train has no attribute 'mode'\.$"):
        result().mode  # noqa: B018


def test_an_exception_carries_what_there_was():
    error = KeyboardInterrupt()
    leave_result(error, 3)
    assert error.result == 3

    class SlottedError(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    leave_result(SlottedError(), 3)  # which has no place for it


@pytest.mark.parametrize("value", [True, "text", None, np.array([1.0, 2.0])])
def test_only_numbers_are_values(value):
    found = result(scores=[{"rank": 0, "time": 1.0, "odd": value, "loss": 2.0}])
    assert [name for name, _ in found._values()] == ["results of", "loss"]
