"""Ranks that read a stream and train in step: whatever the sizes are, none waits for ever for one that waits for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_train.data import batches
from dask_train.data.batches import Reader
from dask_train.data.columns import Column, Columns
from dask_train.data.order import shares
from dask_train.data.plan import EpochPlan
from dask_train.data.streamed import StreamedRows
from dask_train.data.table import Table
from dask_train.shared_data.streaming import _Going

EPOCHS = 2


@dataclass
class Course:
    """What a reader's thread does in an epoch: it opens a group, or puts a bundle of batches in a queue of a depth."""

    steps: list[tuple[str, Any]] = field(default_factory=list)
    depth: int = 0

    def opens(self, schema: Columns, group: int, needed_from: int) -> Any:
        self.steps.append(("open", (group, needed_from)))
        return SimpleNamespace(schema=schema)

    def ahead(self, prepared: Iterator[list[Any]], depth: int) -> Any:
        """Stand in for the thread and its queue: bundles are noted as they come."""
        self.depth = depth

        def noted() -> Iterator[list[Any]]:
            for bundle in prepared:
                self.steps.append(("put", len(bundle)))
                yield bundle

        return closing_iterator(noted())


def closing_iterator(bundles: Iterator[list[Any]]) -> Any:
    return type("Noted", (), {"__iter__": lambda _: bundles, "close": lambda _: None})()


class WithoutRows(Reader):
    """A reader that gathers nothing."""

    def gathered(self, partition: Any, row: Any, rows: Any) -> list[np.ndarray]:
        return [partition]


def course_of(plan: EpochPlan, table: Table, rank: int, first: int, batch_size: int, num_shares: int) -> Course:
    """Let the real reader go through an epoch."""
    course = Course()
    order = shares(
        plan,
        batch_size=batch_size,
        rank=rank,
        size=len(table.host_of_rank),
        num_shares=num_shares,
        owner=table.owner,
        host_of_rank=table.host_of_rank,
        first=first,
    )
    rows = StreamedRows(table, plan, rank, partial(course.opens, table.schema))
    with mock.patch.object(batches, "Ahead", course.ahead):
        reader = WithoutRows(None, None, None)  # type: ignore[arg-type]
        with closing(reader.read(order, rows)) as read:
            assert sum(1 for _ in read) == sum(size for step, size in course.steps if step == "put")
    return course


class Rank:
    """A reader's thread and the loop that takes its batches, which the driver paces."""

    def __init__(self, number: int, courses: list[Course], going: _Going) -> None:
        self.number, self.courses, self.going = number, courses, going
        self.epoch, self.next, self.queue, self.hand = 0, 0, list[int](), 0
        self.asked: tuple[int, int] | None = None
        self.taken = 0  # batches, over all epochs

    @property
    def is_done(self) -> bool:
        return self.epoch == len(self.courses)

    def read(self) -> bool:
        """Let the thread do its next step, if nothing holds it up; as ``StreamOnDask.group`` does."""
        course = self.courses[self.epoch]
        if self.next == len(course.steps):
            return False
        step, what = course.steps[self.next]
        if step == "put":
            if len(self.queue) == course.depth:
                return False
            self.queue.append(what)
        else:
            place, needed_from = (self.going.place(self.epoch, group) for group in what)
            if self.asked is None:
                self.asked = needed_from, place
                self.going.reached(self.number, self.asked)
                return True
            if not self.going.may_open(place):
                return False
            self.asked = None
        self.next += 1
        return True

    def take(self, least_taken: int) -> bool:
        """Let the loop take its next batch: after a step, which ends when all ranks have that batch."""
        if self.taken > least_taken:
            return False
        if not self.hand and self.queue:
            self.hand = self.queue.pop(0)
        if self.hand:
            self.hand -= 1
            self.taken += 1
            return True
        if self.next < len(self.courses[self.epoch].steps):
            return False
        self.going.gone(self.number)
        self.epoch, self.next = self.epoch + 1, 0
        return True


def check_that_all_end(ranks: list[Rank], chance: random.Random) -> None:
    while left := [rank for rank in ranks if not rank.is_done]:
        chance.shuffle(left)
        least_taken = min(rank.taken for rank in ranks)
        moves = (move() for rank in left for move in (rank.read, partial(rank.take, least_taken)))
        assert any(moves), {rank.number: (rank.epoch, rank.asked, rank.queue, rank.taken) for rank in ranks}


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=24).filter(any),
    window=st.integers(1, 4),
    batch_size=st.integers(1, 40),
    num_ranks=st.integers(1, 4),
    num_shares=st.integers(0, 6),
    hosts=st.lists(st.integers(0, 2), min_size=28, max_size=28),
    shuffle=st.sampled_from([True, False, "partition"]),
    row_bytes=st.sampled_from([0, 1, 300_000, 1 << 20, 3 << 20, 40 << 20]),
    start=st.integers(0, 9),
    seed=st.integers(0, 9),
    chance=st.randoms(),
)
# Rank 0 has no row of the last group; the same with the default window; and ranks without a row of any batch.
@example([7, 7, 7, 7, 2], 2, 8, 2, 0, [0] * 28, False, 16, 0, 0, random.Random(0))  # noqa: S311
@example([50] * 16 + [2], 8, 64, 2, 0, [0] * 28, True, 16, 0, 0, random.Random(0))  # noqa: S311
@example([1] * 24, 1, 1, 2, 0, [0] * 28, False, 1 << 20, 9, 0, random.Random(0))  # noqa: S311
@settings(deadline=None, max_examples=150)
def test_no_rank_waits_for_ever(
    lengths, window, batch_size, num_ranks, num_shares, hosts, shuffle, row_bytes, start, seed, chance
):
    table = Table(
        schema=Columns(columns=(Column(dtype="|u1", row_shape=(row_bytes,)),)),
        lengths=np.array(lengths),
        owner=np.array(hosts[: len(lengths)]),
        host_of_rank=np.array(hosts[-num_ranks:]),
        window=window,
    )

    def plan(epoch: int) -> EpochPlan:
        return EpochPlan(lengths=table.lengths, shuffle=shuffle, seed=seed, epoch=epoch, window=window)

    going, num_batches = _Going(plan), -(-sum(lengths) // batch_size)
    num_shares = num_shares and max(num_shares, num_ranks)
    ranks = []
    for number in range(num_ranks):
        courses = []
        for epoch in range(EPOCHS):
            first = 0 if epoch else min(start, num_batches - 1)
            courses.append(course_of(plan(epoch), table, number, first, batch_size, num_shares))
        ranks.append(Rank(number, courses, going))
    check_that_all_end(ranks, chance)
