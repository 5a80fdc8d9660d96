"""Ranks that sum, as threads of a test."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from dask_train.collectives import ProcessGroup
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.rendezvous import meet


@pytest.fixture
def on_each_rank(in_threads: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Calls a function with a rank and its group, in so many threads; what it returns in each."""

    def called(function: Callable[[int, ProcessGroup], Any], size: int) -> list[Any]:
        hosts = Hosts.of([f"10.0.0.5:{os.getpid()}-{rank}" for rank in range(size)])

        def take_part(rank: int) -> Any:
            with closing(ProcessGroup(hosts, rank, meet(hosts, rank, b"test", 10.0), None, 10.0)) as replicas:
                return function(rank, replicas)

        return in_threads(*(partial(take_part, rank) for rank in range(size)))

    return called
