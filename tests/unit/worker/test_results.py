"""A result as a Dask worker gets it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.errors import DataError
from dask_train.worker import results
from dask_train.worker.results import fetch_result

HERE, THERE = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"


@pytest.fixture
def fetched(monkeypatch):
    """What a Dask worker that has ``here`` gets, where others answer with what Dask's function gives."""

    def fetch(here: dict[str, Any], answer: Any = None) -> Any:
        async def gather(who_has: dict[str, list[str]], rpc: Any, *, who: str) -> Any:
            assert (who_has, rpc, who) == ({"x": [THERE]}, "connections", HERE)
            assert answer is not None, "nobody is asked for what is here"
            return answer

        monkeypatch.setattr(results, "gather_from_workers", gather)
        worker: Any = SimpleNamespace(data=here, rpc="connections", address=HERE)
        return asyncio.run(fetch_result(worker, "x", [THERE]))

    return fetch


def test_what_is_here_is_the_very_object(fetched):
    value = object()
    assert fetched({"x": value}) is value


def test_what_is_elsewhere_is_a_copy_from_there(fetched):
    assert fetched({"y": 1}, ({"x": "a copy"}, [], [], [])) == "a copy"
    assert fetched({}, ({"x": None}, [], [], [])) is None, "None is a value, too"


@pytest.mark.parametrize(
    ("answer", "why"),
    [(({}, ["x"], [], []), "it is not on tcp://10.0.0.2:1"), (({}, [], ["x"], []), "it can not be read on")],
)
def test_what_can_not_be_had_is_an_error_that_is_known(fetched, answer, why):
    with pytest.raises(DataError, match=why):
        fetched({}, answer)
