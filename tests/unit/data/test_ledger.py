"""The ledger adds up: against rows that are counted one by one."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.account import WHOLE, Account, BatchRange, read_account
from dask_train.data.ledger import balance, left_out, share_rows
from dask_train.data.order import shares
from dask_train.data.plan import EpochPlan


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 5), st.integers(0, 9), st.data())
def test_rows_of_a_share_are_those_that_the_order_gives(num_rows, batch_size, size, num_shares, data):
    rank = data.draw(st.integers(0, size - 1))
    plan = EpochPlan(lengths=np.array([num_rows]), shuffle=True, seed=0, epoch=0)
    its_order = shares(plan, batch_size=batch_size, rank=rank, size=size, num_shares=num_shares)
    rows = [some.share_rows for some in its_order for _ in range(len(some))]
    first = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(first, len(rows)))
    assert share_rows(num_rows, batch_size, rank, size, first, stop, num_shares) == sum(rows[first:stop])


@st.composite
def histories(draw):
    """Rows, batch size, and of each rank the attempts: where each began, and how far it came."""
    num_rows, batch_size, size = draw(st.integers(1, 50)), draw(st.integers(1, 12)), draw(st.integers(1, 4))
    num_batches = -(-num_rows // batch_size)
    ranks = {}
    for rank in range(size):
        attempts = []
        for _ in range(draw(st.integers(0, 3))):
            first = draw(st.integers(0, num_batches))
            taken = draw(st.integers(0, num_batches - first))
            done = max(0, taken - draw(st.integers(0, 1)))
            attempts.append(
                [BatchRange(dataset=0, turn=0, epoch=0, batch_size=batch_size, first=first, taken=taken, done=done)]
            )
        ranks["worker", rank] = attempts
    return num_rows, batch_size, size, ranks


@given(histories())
def test_it_is_what_counting_row_by_row_gives(history):
    num_rows, batch_size, size, ranks = history
    ledger = balance(ranks, {"worker": size}, {("worker", 0): num_rows})
    read, trained = 0, Counter()
    for (_, rank), attempts in ranks.items():
        plan = EpochPlan(lengths=np.array([num_rows]), shuffle=False, seed=0, epoch=0)
        its_order = shares(plan, batch_size=batch_size, rank=rank, size=size)
        batches = [some[number : number + 1].row.tolist() for some in its_order for number in range(len(some))]
        for (stretch,) in attempts:
            read += sum(map(len, batches[stretch.first : stretch.first + stretch.taken]))
            trained.update(sum(batches[stretch.first : stretch.first + stretch.done], []))
    assert ledger.read == read
    assert ledger.trained == len(trained)
    assert ledger.repeated == trained.total() - len(trained)
    begun = any(ranks.values())
    assert ledger.trained + ledger.dropped == (num_rows if begun else 0)


def test_lines_are_by_role_rank_turn_and_epoch():
    worker = [
        BatchRange(dataset=0, turn=0, epoch=epoch, batch_size=10, first=0, taken=10, done=10) for epoch in range(2)
    ]
    scorer = [BatchRange(dataset=1, turn=turn, epoch=0, batch_size=7, first=0, taken=1, done=1) for turn in range(2)]
    ledger = balance(
        {("worker", 0): [worker], ("scorer", 0): [scorer]},
        {"worker": 1, "scorer": 1},
        {("worker", 0): 100, ("", 1): 8},
    )
    assert [(line.role, line.turn, line.epoch, line.trained) for line in ledger.lines] == [
        ("worker", 0, 0, 100),
        ("worker", 0, 1, 100),
        ("scorer", 0, 0, 7),
        ("scorer", 1, 0, 7),
    ]
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (214, 214, 0, 2)


def test_an_account_grows_and_is_read_as_it_stands():
    file = os.memfd_create("account")
    account = Account(file)
    assert read_account(file) == []
    for epoch in range(1500):
        stretch = account.begin(BatchRange(dataset=0, turn=0, epoch=epoch, batch_size=4, first=0))
        account.taken(stretch)
        account.done(stretch)
    records = read_account(file)
    assert len(records) == 1500
    assert BatchRange.of(records[-1]) == BatchRange(
        dataset=0, turn=0, epoch=1499, batch_size=4, first=0, taken=1, done=1
    )
    os.close(file)


def test_the_table_is_a_frame():
    pd = pytest.importorskip("pandas")
    stretch = BatchRange(dataset=0, turn=0, epoch=0, batch_size=10, first=0, taken=1, done=1)
    table = balance({("worker", 0): [[stretch]]}, {"worker": 1}, {("worker", 0): 10}).table
    assert isinstance(table, pd.DataFrame)
    assert table.to_dict("records") == [
        {"role": "worker", "rank": 0, "dataset": 0, "turn": 0, "epoch": 0, "read": 10, "trained": 10, "repeated": 0}
    ]


def stretch(epoch, first, done, *, taken=None, batch_size=10, dataset=0):
    taken = done if taken is None else taken
    return BatchRange(dataset=dataset, turn=0, epoch=epoch, batch_size=batch_size, first=first, taken=taken, done=done)


COVERED = [stretch(0, 0, 4), stretch(1, 0, 3)]


@pytest.mark.parametrize(
    ("own", "same_run", "wanted"),
    [
        ([stretch(1, 3, 1)], True, [stretch(0, 0, 4), stretch(1, 0, 3)]),
        ([stretch(1, 2, 1), stretch(2, 0, 1)], True, [stretch(0, 0, 4), stretch(1, 0, 2)]),
        ([stretch(1, 0, 1)], True, [stretch(0, 0, 4), stretch(1, 0, 0)]),
        ([stretch(0, 0, 1)], True, [stretch(0, 0, 0)]),
        ([], True, COVERED),
        ([stretch(1, 3, 1)], False, [stretch(1, 0, 3)]),
        ([stretch(1, 3, 1, batch_size=5)], True, [stretch(0, 0, 4)]),
        ([stretch(1, 3, 1, dataset=1)], False, []),
        ([], False, []),
    ],
)
def test_what_a_role_left_out_because_it_is_in_a_checkpoint(own, same_run, wanted):
    assert list(left_out(COVERED, own, rank=0, same_run=same_run)) == wanted


def test_whole_partitions_in_a_checkpoint_are_those_of_the_rank_that_kept_it():
    whole = replace(stretch(0, 0, 60, batch_size=WHOLE), rank=1)
    assert list(left_out([whole], [], rank=1, same_run=True)) == [whole]
    assert list(left_out([whole], [], rank=0, same_run=True)) == []


def test_what_is_in_a_checkpoint_counts_once():
    """40 rows in batches of 10 over 2 ranks: rank 0 was seen all along, rank 1 lost its account with 3 done."""
    accounts = {("worker", 0): [[stretch(0, 0, 3)], [stretch(0, 3, 1)]], ("worker", 1): [[stretch(0, 3, 1)]]}
    counts, rows = {"worker": 2}, {("worker", 0): 40}
    lost = balance(accounts, counts, rows)
    assert (lost.trained, lost.dropped) == (25, 15)
    covered = {("worker", rank): [stretch(0, 0, 3)] for rank in range(2)}
    ledger = balance(accounts, counts, rows, covered)
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (40, 40, 0, 0)
    nothing_since = balance({("worker", 1): []}, counts, rows, {("worker", 1): [stretch(0, 0, 3)]})
    assert (nothing_since.read, nothing_since.trained) == (15, 15)


def test_a_stretch_counts_with_the_number_of_ranks_that_shared_it():
    first, then = replace(stretch(0, 0, 2), size=2), replace(stretch(0, 2, 3), size=3)
    accounts = {("worker", rank): [[first, then] if rank < 2 else [then]] for rank in range(3)}
    ledger = balance(accounts, {"worker": 2}, {("worker", 0): 46})
    assert [line.trained for line in ledger.lines] == [10 + 8, 10 + 8, 10]
    assert ledger.dropped == 0
