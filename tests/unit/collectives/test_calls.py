"""The results of calls since a border."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.collectives import calls as calls_module
from dask_train.collectives.calls import Calls
from dask_train.collectives.shared_memory import SumBuffer


def test_a_newcomer_is_answered_with_what_the_others_have_kept():
    made, mine = Calls(), np.arange(3)
    made.begin_again()
    made.made("gather", [mine])
    mine += 1  # by whoever has made the call
    again = Calls()
    again.go_through(made.completed, made.last(), made.told())
    assert again.answers
    np.testing.assert_array_equal(again.answer("gather")[0], [0, 1, 2])
    assert (again.answers, again.number, made.number) == (False, 1, 1)
    assert (again.completed, made.completed) == (1, 1), "what is answered was made by others"
    assert [text for text, _ in again.told()] == ["gather"], "it can tell the next newcomer"


def test_who_makes_another_call_is_no_successor():
    again = Calls()
    again.go_through(1, None, [("gather of rows", [])])
    with pytest.raises(ValueError, match="it makes a sum where the others have made gather of rows"):
        again.answer("a sum")


def test_a_total_is_copied_when_its_channel_is_used_again():
    made, channel, total = Calls(), SumBuffer([(2,)], "f8"), np.array([1.0, 2.0])
    made.made("sum", [total], channel)
    made.used(channel)
    total[:] = 7.0
    np.testing.assert_array_equal(made.told()[0][1][0], [1.0, 2.0])


def test_results_are_kept_up_to_a_size(monkeypatch):
    monkeypatch.setattr(calls_module, "MOST_BYTES", 100)
    made = Calls()
    for _ in range(3):
        made.made("gather", [np.zeros(6)])
    assert (made.number, made.is_whole) == (3, False)
    made.begin_again()
    assert made.is_whole


def test_the_last_one_is_kept_beyond_a_border_and_when_its_channel_is_used_again():
    made, channel, total = Calls(), SumBuffer([(2,)], "f8"), np.array([1.0, 2.0])
    assert made.last() is None
    made.made("sum", [total], channel)
    made.begin_again()
    assert (made.told(), made.completed) == ([], 1)
    text, (kept,) = made.last()
    assert (text, kept is total) == ("sum", True), "no copy before it is needed"
    made.used(channel)
    total[:] = 7.0
    np.testing.assert_array_equal(made.last()[1][0], [1.0, 2.0])


def test_who_has_gone_through_the_calls_of_others_can_tell_the_last_one():
    again = Calls()
    again.go_through(5, ("sum", [np.ones(2)]), [])
    assert (again.completed, again.answers, again.last()[0]) == (5, False, "sum")
