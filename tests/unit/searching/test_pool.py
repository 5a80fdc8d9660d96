"""What a slot of a search is handed, as those see it who look from elsewhere."""

from __future__ import annotations

import pickle
from collections import deque
from types import SimpleNamespace

import numpy as np

from dask_train.dashboard.searches import Searches
from dask_train.searching.pool import MAX_TEXT, PoolSlot, Slots
from dask_train.searching.study import Handed
from dask_train.searching.worker import TrialDone, TrialRequest


def test_a_trial_is_told_in_plain_values_before_it_is_sent():
    told, sent = [], []
    run = SimpleNamespace(_driver=SimpleNamespace(trials=told), send=lambda request: sent.append((request, list(told))))
    params = {"rate": np.float64(0.5), "units": 8, "act": "relu", "deep": True, "shape": (1, 2), "x" * 99: "y" * 99}
    request = TrialRequest(number=3, work=None, metric="val_loss", mode="min", to_beat=None)
    PoolSlot(run).hand(Handed(number=3, params=params, request=request), "search-1")
    (trial,) = told
    assert trial["params"] == {
        "rate": 0.5,
        "units": 8,
        "act": "relu",
        "deep": "True",
        "shape": "(1, 2)",
        "x" * MAX_TEXT: "y" * MAX_TEXT,
    }
    assert {type(value) for value in trial["params"].values()} == {float, int, str}
    assert sent == [(request, [trial])]
    searches = Searches()
    searches.tell("run", [trial])
    assert (searches["search-1"].metric, searches["search-1"].trials[3].run) == ("val_loss", "run")


def test_the_last_scores_of_a_trial_are_read_before_its_end():
    """Also if they arrive together while the study stores the scores before."""
    read, driver = [], SimpleNamespace(over=False, history=SimpleNamespace(scores=[], values=deque()))
    done = TrialDone(number=3, value=0.5, epoch=1, seconds=1.0, parts=None)

    def scored(_, scores):
        read.append(scores["epoch"])
        if scores["epoch"] == 0:
            driver.history.scores.append({"trial": 3, "epoch": 1})
            driver.history.values.append(("worker", 0, pickle.dumps(done)))

    study = SimpleNamespace(scored=scored, done=lambda _, outcome: read.append(outcome.value))
    slots = Slots(None, None, study, start=None, capacity=None)
    slot = PoolSlot(SimpleNamespace(_driver=driver))
    slot.handed = Handed(number=3, params={})
    driver.history.scores.append({"trial": 3, "epoch": 0})
    slots._look_at(slot)
    slots._look_at(slot)
    assert read == [0, 1, 0.5]
