"""Which rows of each global batch each rank takes."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data import order as order_module
from dask_train.data import plan as plan_module
from dask_train.data.order import Shares, block_of, shares
from dask_train.data.plan import EpochPlan


@st.composite
def runs(draw, *, hosts):
    """A plan, the settings of shares() but for rank and first, and a size of the windows."""
    lengths = np.array(draw(st.lists(st.integers(0, 40), max_size=10)), np.int64)
    plan = EpochPlan(
        lengths=lengths,
        shuffle=draw(st.sampled_from([True, False, "partition"])),
        seed=draw(st.integers(0, 3)),
        epoch=draw(st.integers(0, 3)),
        window=draw(st.none() | st.integers(1, 4)),
    )
    size = draw(st.integers(1, 7))
    settings = {"batch_size": draw(st.integers(1, 45)), "size": size}
    if hosts:
        host = st.integers(0, draw(st.integers(0, 4)))
        settings["owner"] = np.array(draw(st.lists(host, min_size=len(lengths), max_size=len(lengths))), np.int64)
        settings["host_of_rank"] = np.array(draw(st.lists(host, min_size=size, max_size=size)), np.int64)
    return plan, settings, draw(st.integers(1, 100))


def each(plan: EpochPlan, rank: int, **settings: object) -> list[Shares]:
    """A rank's shares, those of one batch at a time."""
    return [some[n : n + 1] for some in shares(plan, rank=rank, **settings) for n in range(len(some))]


def rows_of(plan: EpochPlan, rank: int, **settings: object) -> list[tuple[list[int], int]]:
    """Rows of a rank's shares, numbered through the data set, and how many there are over all ranks."""
    offsets = np.cumsum(plan.lengths) - plan.lengths
    found = each(plan, rank, **settings)
    assert {array.dtype for share in found for array in (share.partition, share.row)} <= {np.dtype(np.int64)}
    return [((offsets[share.partition] + share.row).tolist(), share.global_rows) for share in found]


def check_epoch(plan: EpochPlan, settings: dict[str, object]) -> None:
    batch_size, size = settings["batch_size"], settings["size"]
    ranks = [rows_of(plan, rank, **settings) for rank in range(size)]
    alone = rows_of(plan, 0, batch_size=batch_size, size=1)
    order = sum((rows for rows, _ in alone), [])
    assert sorted(order) == list(range(plan.num_rows))
    assert plan.shuffle or order == sorted(order)
    assert {len(rank) for rank in ranks} == {len(alone)} == {-(-plan.num_rows // batch_size)}
    for batch, (whole, total) in enumerate(alone):
        parts = [rank[batch][0] for rank in ranks]
        assert {rank[batch][1] for rank in ranks} == {total} == {len(whole)}
        assert total == batch_size or batch == len(alone) - 1
        assert sorted(sum(parts, [])) == sorted(whole), "the same global batch for any number of ranks"
        for rank, rows in enumerate(parts):
            assert len(rows) == (rank + 1) * total // size - rank * total // size
            places = [whole.index(row) for row in rows]
            assert places == sorted(places), "in the order that they have in the batch"
    for first in {0, 1, len(alone) // 2, len(alone)}:
        assert [rows_of(plan, rank, first=first, **settings) for rank in range(size)] == [r[first:] for r in ranks]


@given(runs(hosts=True))
def test_an_epoch_is_every_row_once_wherever_rows_and_ranks_are(run):
    plan, settings, window_rows = run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "WINDOW_ROWS", window_rows)
        patch.setattr(order_module, "WINDOW_ROWS", window_rows)
        check_epoch(plan, settings)


@given(runs(hosts=False))
def test_without_hosts_each_batch_is_cut_in_its_order(run):
    plan, settings, _ = run
    check_epoch(plan, settings)
    ranks = [rows_of(plan, rank, **settings) for rank in range(settings["size"])]
    for batch, (whole, _) in enumerate(rows_of(plan, 0, batch_size=settings["batch_size"], size=1)):
        assert sum((rank[batch][0] for rank in ranks), []) == whole


@given(runs(hosts=True))
def test_a_host_takes_from_others_only_what_it_lacks(run):
    plan, settings, _ = run
    owner, host_of_rank = settings["owner"], settings["host_of_rank"]
    ranks = [each(plan, rank, **settings) for rank in range(settings["size"])]
    for parts in zip(*ranks, strict=True):
        lying = np.bincount(np.concatenate([owner[part.partition] for part in parts]), minlength=5)
        demand = np.bincount(host_of_rank, [len(part.row) for part in parts], 5)
        lacking = np.maximum(0, demand - lying)
        from_others = [(owner[part.partition] != host).sum() for part, host in zip(parts, host_of_rank, strict=True)]
        assert (np.bincount(host_of_rank, from_others, 5) == lacking).all()
        for part, host, num in zip(parts, host_of_rank, from_others, strict=True):
            assert abs(num - len(part.row) * lacking[host] / max(1, demand[host])) < 1, "ranks of a host lack alike"


def test_what_one_host_has_too_many_is_given_in_order():
    plan = EpochPlan(lengths=np.array([2, 6, 1, 3]), shuffle=False, seed=0, epoch=0)
    hosts = {"owner": np.array([0, 1, 0, 2]), "host_of_rank": np.array([0, 2, 1, 0])}
    ranks = [rows_of(plan, rank, batch_size=12, size=4, **hosts)[0][0] for rank in range(4)]
    assert ranks == [[0, 5, 6], [9, 10, 11], [2, 3, 4], [1, 7, 8]]


def test_what_several_hosts_have_too_many_is_given_host_by_host():
    plan = EpochPlan(lengths=np.array([5, 7]), shuffle=False, seed=0, epoch=0)
    hosts = {"owner": np.array([1, 0]), "host_of_rank": np.array([0, 1, 2, 3])}
    ranks = [rows_of(plan, rank, batch_size=12, size=4, **hosts)[0][0] for rank in range(4)]
    assert ranks == [[5, 6, 7], [0, 1, 2], [8, 9, 10], [3, 4, 11]]


def test_memory_does_not_grow_with_rows_or_ranks():
    random = np.random.default_rng(0)
    lengths = random.integers(0, 2**40, 100_000)
    hosts = {"owner": random.integers(0, 64, 100_000), "host_of_rank": np.arange(1_000) % 64}
    tracemalloc.start()
    try:
        for window in (None, 1_000):
            plan = EpochPlan(lengths=lengths, shuffle=True, seed=0, epoch=0, window=window)
            order = shares(plan, batch_size=1 << 16, rank=999, size=1_000, first=1 << 20, **hosts)
            assert [(len(some), some.share_rows) for some in itertools.islice(order, 2)] == [(1, 66)] * 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000, "20 numbers a partition; rows and ranks add next to nothing"


@given(runs(hosts=True), st.integers(1, 9))
def test_shares_of_a_fixed_number_are_the_same_rows_for_any_number_of_ranks(run, num_shares):
    plan, settings, _ = run
    own = {"batch_size": settings["batch_size"], "num_shares": num_shares}
    of_each = [rows_of(plan, share, size=num_shares, **own) for share in range(num_shares)]
    for rank in range(settings["size"]):  # wherever their rows lie
        found = rows_of(plan, rank, **settings, num_shares=num_shares)
        block = block_of(rank, settings["size"], num_shares)
        several = [[one for one, _ in of_each[share]] for share in block]
        assert [rows for rows, _ in found] == [sum(parts, []) for parts in zip(*several, strict=True)] or not block
