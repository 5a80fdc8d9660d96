"""A value that a client has given up is not put again until the scheduler has heard of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dask_train.cluster import given_up
from dask_train.cluster.given_up import is_wanted, until_given_up


def test_who_wants_it_is_told_by_the_scheduler():
    holder = SimpleNamespace(client_key="me")
    scheduler = SimpleNamespace(tasks={"model": SimpleNamespace(who_wants={1: holder}.values())})
    assert is_wanted("me", "model", dask_scheduler=scheduler)
    assert not is_wanted("another", "model", dask_scheduler=scheduler)
    assert not is_wanted("me", "other", dask_scheduler=scheduler)


def test_it_is_waited_for(monkeypatch):
    answers = iter([True, True, False])

    class Peer:
        def __init__(self, client: Any) -> None: ...

        async def on_scheduler(self, function: Any, client: str, key: str) -> bool:
            assert (client, key) == ("me", "model")
            return next(answers)

    monkeypatch.setattr(given_up, "Peer", Peer)
    asyncio.run(until_given_up(SimpleNamespace(id="me"), "model"))  # type: ignore[arg-type]
    assert list(answers) == []
