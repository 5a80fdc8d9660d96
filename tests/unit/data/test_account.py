"""Which batches a role has taken, as its agent reads it at any moment."""

from __future__ import annotations

import os

import pytest

from dask_train.data.account import _GROWTH, WHOLE, Account, BatchRange, read_account


@pytest.fixture
def file():
    descriptor = os.memfd_create("account")
    yield descriptor
    os.close(descriptor)


def stretch(epoch=0, first=0, **more):
    return BatchRange(**{"dataset": 0, "turn": 0, "epoch": epoch, "batch_size": 32, "first": first, **more})


def counts(file):
    """Batches taken and done, of each stretch."""
    return [(each.taken, each.done) for each in map(BatchRange.of, read_account(file))]


def test_what_was_begun_is_read_as_it_was(file):
    account = Account(file)
    assert read_account(file) == []
    its = [stretch(), stretch(1, 5, dataset=2, turn=7), stretch(batch_size=WHOLE)]
    assert [account.begin(each) for each in its] == [0, 1, 2]
    assert list(map(BatchRange.of, read_account(file))) == its


def test_a_batch_is_taken_and_then_done(file):
    account = Account(file)
    first, second = account.begin(stretch()), account.begin(stretch(1))
    account.taken(first)
    account.taken(second, 40)
    assert counts(file) == [(1, 0), (40, 0)]
    account.done(first)
    account.taken(first)
    assert counts(file) == [(2, 1), (40, 0)]
    account.all_done()
    assert counts(file) == [(2, 2), (40, 40)]


def test_it_grows_and_keeps_what_there_was(file):
    account = Account(file)
    for epoch in range(_GROWTH + 1):
        account.taken(account.begin(stretch(epoch)))
    assert [each.epoch for each in map(BatchRange.of, read_account(file))] == list(range(_GROWTH + 1))
    account.done(0)
    account.done(_GROWTH)
    assert counts(file)[::_GROWTH] == [(1, 1), (1, 1)]
    assert counts(file)[1] == (1, 0)


@pytest.mark.parametrize("then", ["taken", "begin", "settle"])
def test_who_works_on_after_a_loop_was_done_with_its_batch(file, then):
    account = Account(file)
    first = account.begin(stretch())
    account.taken(first)
    account.left(first)
    assert counts(file) == [(1, 0)]
    {"taken": lambda: account.taken(first), "begin": lambda: account.begin(stretch(1)), "settle": account.settle}[
        then
    ]()
    assert counts(file)[0][1] == 1


def test_who_raises_was_not(file):
    account = Account(file)
    first = account.begin(stretch())
    account.taken(first)
    account.done(first)
    account.taken(first)
    account.left(first)
    account.seal()
    account.settle()
    account.all_done()
    assert counts(file) == [(2, 1)]


def test_what_a_checkpoint_covers_is_all_that_was_taken(file):
    account = Account(file)
    assert account.covered() == []
    account.taken(account.begin(stretch()), 3)
    assert account.covered() == [[0, 0, 0, 32, 0, 3, 3, 0, 0, -1, 0]]
    assert counts(file) == [(3, 0)], "it is not kept yet"
