"""What a slot of a search is handed, as those see it who look from elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dask_train.dashboard.searches import Searches
from dask_train.searching.pool import MAX_TEXT, PoolSlot
from dask_train.searching.study import Handed
from dask_train.searching.worker import TrialRequest


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
