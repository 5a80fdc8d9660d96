"""A session with a link that keeps what it is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_train.data.account import Account
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import DataError
from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.role.equipment import Equipment
from dask_train.role.meeting import Meeting
from dask_train.role.session import Session
from dask_train.role.time_spent import TimeSpent
from dask_train.roles import AddressBook


class FakeLink:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.spent = TimeSpent()
        self.stop_reason = ""
        self.reports: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.moves: list[tuple[str, int]] = []
        self.notes: list[str] = []
        self.datasets: dict[str, Any] = {}
        self.elsewhere: Any = None  # of the partitions that are not here, by number
        self.groups: list[Any] = []
        self.streams: list[tuple[Any, ...]] = []
        self.waited = 0
        self.notices: list[str] = []
        self.covers: list[Any] = []

    def report(self, scores: dict[str, Any]) -> None:
        self.reports.append(scores)

    def ask_to_stop(self, reason: str) -> None:
        self.asked.append(reason)

    def moved(self, doing: str, *, batches: int = 0, rows: int = 0) -> None:
        self.moves.append((doing, batches))

    def note(self, doing: str) -> None:
        self.notes.append(doing)

    def wait_until_stopped(self) -> None:
        self.waited += 1

    def dataset(self, name: str) -> Any:
        if name not in self.datasets:
            raise DataError(f"There is no data set {name!r}.")
        return 1, *self.datasets[name]

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        self.streams.append(("rows", stream))
        return [np.stack([self.elsewhere[p][r] for p, r in zip(partition, row, strict=True)])]

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Any:
        self.streams.append(("open", stream, group, needed_from))
        return self.groups[group]

    def leave(self, stream: Stream) -> None:
        self.streams.append(("leave", stream))

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def went_on(self, covers: Any) -> None:
        self.covers.append(list(covers))


@pytest.fixture
def laid_out(pool, table_of, mapped) -> Callable[..., Any]:
    """A data set of one partition, mapped, with its table; for a role of two."""

    def lay_out(*arrays: np.ndarray, ranks: int = 2, **shape: Any) -> Any:
        table = table_of([arrays], host_of_rank=np.zeros(ranks, np.int64), **shape)
        return table, mapped(table, {0: Segment(arrays)})

    return lay_out


def made(role: str = "worker", rank: int = 0, *, link: FakeLink | None = None, **more: Any) -> Session:
    counts = more.pop("counts", {"worker": 2})
    training = more.pop("training", ("chief", "worker"))
    me = RoleInfo(role=role, rank=rank, counts=counts, host="h", num_threads=1, training=training)
    settings = {
        "attempt": 0,
        "framework": Framework(),
        "peers": AddressBook(),
        "extras": {},
        "data": None,
        "checkpoint": None,
    }
    account = more.pop("account", None) or Account(os.memfd_create("account"))
    link = link or FakeLink()
    its = {"scratch": Path("scratch"), "account": account, "meeting": Meeting(link, me, 10.0, 10.0)}
    return Session(link, me, Equipment(**(its | settings | more)))


@pytest.fixture(name="fake_link")
def _fake_link() -> type[FakeLink]:
    """Makes links that keep what they are told."""
    return FakeLink


@pytest.fixture(name="session")
def _session() -> Callable[..., Session]:
    """Makes sessions of roles, with nothing but what they are given."""
    return made
