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
    again.go_through(made.told())
    assert again.answers
    np.testing.assert_array_equal(again.answer("gather")[0], [0, 1, 2])
    assert (again.answers, again.number, made.number) == (False, 1, 1)
    assert [text for text, _ in again.told()] == ["gather"], "it can tell the next newcomer"


def test_who_makes_another_call_is_no_successor():
    again = Calls()
    again.go_through([("gather of rows", [])])
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
