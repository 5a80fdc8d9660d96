"""A function as a place for scores: it gets each once, in order, as a dict of its own."""

from __future__ import annotations

import functools

import pytest

from dask_train.logging.base import Ending, Start
from dask_train.logging.log import FunctionLogger

START = Start(run="r", params={}, time=0.0)


def test_scores_are_its_own():
    heard = []
    sink = FunctionLogger(heard.append).open(START, None)
    score = {"loss": 1.0}
    sink.write([score, {"loss": 0.5}])
    heard[0]["loss"] = "changed"
    assert score == {"loss": 1.0}
    sink.end(Ending(status="finished", reason="", time=1.0))
    sink.keep([])
    assert heard[1:] == [{"loss": 0.5}]


def test_what_it_did_not_take_comes_again_before_what_is_new():
    heard, fails = [], [True]

    def hear(score):
        if fails and score["n"] == 1:
            fails.pop()
            raise ConnectionError("not now")
        heard.append(score["n"])

    sink = FunctionLogger(hear).open(START, None)
    with pytest.raises(ConnectionError):
        sink.write([{"n": 0}, {"n": 1}, {"n": 2}])
    assert heard == [0]
    sink.write([])
    sink.write([{"n": 3}])
    assert heard == [0, 1, 2, 3]


def test_warnings_name_it():
    assert FunctionLogger(print).place == "the function print"
    assert "functools.partial" in FunctionLogger(functools.partial(print)).place
