"""Whether a Dask worker can be taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.scheduler.taken import lock, unlock, why_taken


@pytest.fixture
def scheduler(a_scheduler) -> Any:
    return a_scheduler(a=1)


def asked(scheduler: Any, **settings: str) -> str:
    return why_taken(scheduler, scheduler.workers["a"], **{"asking": "me", **settings})


def test_what_is_free(scheduler):
    assert asked(scheduler) == ""


def test_a_lock_keeps_all_but_its_holder_away(scheduler):
    lock(scheduler, ["a"], "mine")
    assert asked(scheduler) == "is locked by another library, such as xgboost.dask"
    assert asked(scheduler, own="mine") == ""
    unlock(scheduler, "mine")
    assert asked(scheduler) == ""


def test_other_plug_ins_are_asked_and_know_better_than_the_lock(scheduler):
    scheduler.plugins = {
        "Dask's": SimpleNamespace(),
        "me": SimpleNamespace(why_taken=lambda _: "nobody asks me"),
        "another": SimpleNamespace(why_taken=lambda address: f"on {address} is another"),
    }
    lock(scheduler, ["a"], "another's")
    assert asked(scheduler) == "on a is another"


@pytest.mark.parametrize(("limit", "percent"), [(100, 84), (0, 0)])
def test_one_that_is_paused(scheduler, limit, percent):
    worker = scheduler.workers["a"]
    worker.status.name, worker.memory_limit = "paused", limit
    worker.metrics["memory"] = 84
    assert asked(scheduler) == f"is paused (memory at {percent}%)"
