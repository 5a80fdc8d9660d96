"""A data set as one rank goes through it: its share of each batch, its partitions, all of it accounted for."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dask_train.data.account import Account, BatchRange, read_account
from dask_train.data.ledger import balance
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import DataError
from dask_train.frameworks.base import Framework
from dask_train.role.time_spent import TimeSpent

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


def lengths_of(found):
    return [len(y) for _, y in found]


def test_each_partition_is_one_ranks_and_a_view_of_the_shared_rows(pool, table_of, mapped, session):
    lengths, names = [3, 0, 5, 1, 4], [f"row {number}" for number in range(13)]
    ends = np.cumsum(lengths)
    x, text = np.arange(26.0).reshape(13, 2), np.array(names, object)
    parts = [(x[end - size : end], text[end - size : end]) for size, end in zip(lengths, ends, strict=True)]
    table = table_of(parts, host_of_rank=np.zeros(2, np.int64), is_tuple=True)
    rows = mapped(table, {number: Segment(part) for number, part in enumerate(parts)})
    seen = []
    for rank, of_its in ((0, [5, 1]), (1, [3, 4])):
        account = os.memfd_create("account")
        one = session(rank=rank, data=(table, rows), account=Account(account))
        found = list(one.partitions())
        assert lengths_of(found) == of_its == lengths_of(one.partitions())
        assert [lengths[number] for number in one.partition_numbers] == of_its
        for values, names_of in found:
            seen += names_of.tolist()
            assert values[:, 0].tolist() == [2.0 * int(name.split()[1]) for name in names_of]
            assert np.shares_memory(values, rows.columns[0])
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 1
        ledger = balance(
            {("worker", rank): [[BatchRange.of(record) for record in read_account(account)]]},
            {"worker": 2},
            {("worker", 0): 13},
        )
        assert [(line.turn, line.read, line.trained) for line in ledger.lines] == [
            (turn, sum(of_its), sum(of_its)) for turn in (0, 1)
        ]
    assert sorted(seen) == sorted(names)


def test_more_ranks_than_partitions(laid_out, session):
    assert [lengths_of(session(rank=rank, data=laid_out(X, Y, is_tuple=True)).partitions()) for rank in (0, 1)] == [
        [10],
        [],
    ]


def test_a_partition_that_lies_elsewhere_is_brought(table_of, mapped, pool, session, fake_link):
    table = table_of([(X,), (X + 100,)])
    link = fake_link()
    link.elsewhere = {1: X + 100}
    one = session(counts={"worker": 1}, link=link, data=(table, mapped(table, {0: Segment((X,))})))
    here, brought = one.partitions()
    assert np.concatenate([here, brought]).tolist() == [*X.tolist(), *(X + 100).tolist()]
    assert not brought.flags.writeable


def test_sparse_partitions_are_sparse_from_wherever_they_come(table_of, mapped, pool, session, fake_link):
    parts = [(csr_array(X),), (csr_array(X + 100),)]
    segments = [Segment(part) for part in parts]
    link = fake_link()
    link.elsewhere = {1: segments[1].rows(np.arange(len(X)))[0]}
    table = table_of(parts)
    one = session(counts={"worker": 1}, link=link, data=(table, mapped(table, {0: segments[0]})))
    for rows, dense in zip(one.partitions(), (X, X + 100), strict=True):
        assert type(rows) is csr_array
        np.testing.assert_array_equal(rows.toarray(), dense)
        assert not any(array.flags.writeable for array in (rows.data, rows.indices, rows.indptr))
    streamed = table_of(parts, window=1)
    link.groups = [mapped(streamed, {number: segments[number]}) for number in range(2)]
    one = session(counts={"worker": 1}, link=link, data=(streamed, mapped(streamed, {})))
    found = list(one.partitions())
    np.testing.assert_array_equal(np.concatenate([rows.toarray() for rows in found]), np.concatenate([X, X + 100]))


def test_partitions_that_are_streamed_are_copies_of_groups_that_come_and_go(table_of, mapped, session, fake_link):
    parts = [(X[start : start + 2], Y[start : start + 2]) for start in range(0, 10, 2)]
    table = table_of(parts, host_of_rank=np.zeros(2, np.int64), window=2, is_tuple=True)
    link = fake_link()
    link.groups = [
        mapped(table, {number: Segment(parts[number]) for number in numbers}) for numbers in ((0, 1), (2, 3), (4,))
    ]
    account = os.memfd_create("account")
    one = session(rank=0, link=link, data=(table, mapped(table, {})), account=Account(account))
    found = list(one.partitions())
    for (x, y), part in zip(found, parts[::2], strict=True):
        np.testing.assert_array_equal(x, part[0])
        np.testing.assert_array_equal(y, part[1])
        assert not any(np.shares_memory(x, group.columns[0]) for group in link.groups)
        assert not x.flags.writeable
    stream = Stream(0, 0, 0, False, 0)
    assert link.streams == [*(("open", stream, group, group) for group in range(3)), ("leave", stream)]
    (record,) = read_account(account)
    assert (BatchRange.of(record).taken, BatchRange.of(record).done) == (6, 6)
    next(one.partitions())
    assert link.streams[-1] == ("leave", Stream(0, 1, 0, False, 0)), "also where the loop is left"


def test_a_role_without_data_has_no_partitions(session):
    with pytest.raises(ValueError, match="Role 'worker' was given no data"):
        session().partitions()


def test_batches_of_all_ranks_are_the_rows(laid_out, session):
    seen = []
    for rank in range(2):
        one = session("worker", rank, data=laid_out(X, Y, is_tuple=True))
        for x, y in one.batches(epochs=2, batch_size=4, shuffle=True, seed=3):
            np.testing.assert_array_equal(x[:, 0], 2 * y)
            seen += y.tolist()
    assert sorted(seen) == sorted([*range(10), *range(10)])


def test_the_wait_for_a_batch_is_told_apart_from_what_is_done_with_it(laid_out, session, fake_link):
    link, clock = fake_link(), itertools.count()  # each look at the clock takes a second
    link.spent = TimeSpent(lambda: next(clock))
    link.spent.begin()
    for _ in session(link=link, data=laid_out(Y)).batches(batch_size=4, shuffle=False):
        assert link.spent.busy_with == "computing"
    assert link.spent.seconds()["data"] == 4, "of three batches, and that there are no more"


def test_rows_of_the_global_batch_are_told(laid_out, session):
    one = session(data=laid_out(Y))
    found = [(batch.tolist(), one.global_rows) for batch in one.batches(batch_size=4, shuffle=False)]
    assert found == [([0, 1], 4), ([4, 5], 4), ([8], 2)]


def test_what_is_taken_is_accounted_for(laid_out, session):
    file = os.memfd_create("account")
    one = session(data=laid_out(Y), account=Account(file))
    taken = iter(one.batches(epochs=2, batch_size=3))
    for _ in range(6):
        next(taken)
    assert read_account(file) == [[0, 0, 0, 3, 0, 4, 4, 2, 0, -1, 0], [0, 0, 1, 3, 0, 2, 1, 2, 0, -1, 0]]
    taken.close()  # as the end of a loop that is left
    other = one.batches(batch_size=4)
    next(other)
    assert read_account(file)[1] == [0, 0, 1, 3, 0, 2, 2, 2, 0, -1, 0]
    with suppress(RuntimeError):
        for _ in one.batches(batch_size=4, start=(0, 1)):
            raise RuntimeError
    one._context.account.seal()  # as where the function raises
    other.close()
    assert read_account(file)[2:] == [[0, 1, 0, 4, 0, 1, 0, 2, 0, -1, 0], [0, 1, 0, 4, 1, 1, 0, 2, 0, -1, 0]]
    os.close(file)


def test_a_call_per_epoch_has_the_orders_and_the_account_of_one_call(laid_out, session):
    settings, accounts = {"batch_size": 3, "seed": 5}, [os.memfd_create(name) for name in ("one", "several")]
    one, several = (session(data=laid_out(Y), account=Account(file)) for file in accounts)
    wanted = [batch.tolist() for batch in one.batches(epochs=3, **settings)]
    found = []
    for epoch in range(3):
        for batch in several.batches(epochs=epoch + 1, start=(epoch, 0), **settings):
            found.append(batch.tolist())
            if len(found) == 6:
                break  # and on from there, in a call of its own
        if epoch == 1:
            found += [batch.tolist() for batch in several.batches(epochs=2, start=several.position, **settings)]
    assert found == wanted
    fields = [[stretch[1:3] + stretch[4:6] for stretch in read_account(file)] for file in accounts]
    assert fields[0] == [[0, 0, 0, 4], [0, 1, 0, 4], [0, 2, 0, 4]]
    assert fields[1] == [[0, 0, 0, 4], [0, 1, 0, 2], [0, 1, 2, 2], [0, 2, 0, 4]]
    again = [batch.tolist() for _ in range(2) for batch in several.batches(**settings)]
    assert again == wanted[:4] * 2, "each call begins with epoch 0, unless told otherwise"
    assert [stretch[1] for stretch in read_account(accounts[1])[4:]] == [4, 5]


def test_it_goes_on_from_a_position(laid_out, session):
    settings = {"epochs": 2, "batch_size": 3, "seed": 5}
    one = session(data=laid_out(Y))
    seen = [(batch.tolist(), one.position) for batch in one.batches(**settings)]
    assert [position for _, position in seen] == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    for number, (_, position) in enumerate(seen):
        later = [batch.tolist() for batch in session(data=laid_out(Y)).batches(**settings, start=position)]
        assert later == [batch for batch, _ in seen[number + 1 :]]
    for bad in ((0, 5), (-1, 0), (1,)):
        with pytest.raises(ValueError, match="an epoch has 4 batches here"):
            session(data=laid_out(Y)).batches(**settings, start=bad)
    with pytest.raises(ValueError, match="shuffle is 'rows'"):
        session(data=laid_out(Y)).batches(shuffle="rows")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [({}, np.ndarray), ({"is_tuple": True}, tuple), ({"names": ("x",)}, dict)],
)
def test_a_batch_has_the_shape_of_what_was_given(laid_out, shape, kind, session):
    (batch, *_) = session(data=laid_out(X, **shape)).batches(batch_size=10, shuffle=False)
    assert isinstance(batch, kind)
    array = batch["x"] if kind is dict else batch[0] if kind is tuple else batch
    np.testing.assert_array_equal(array, X[:5])


@pytest.mark.parametrize("shuffle", [True, False])
def test_writing_to_a_batch_changes_no_rows(laid_out, shuffle, session):
    data = laid_out(Y.copy())
    one = session(data=data)
    for batch in one.batches(epochs=2, batch_size=4, shuffle=shuffle):
        assert batch.flags.c_contiguous
        if batch.flags.writeable:
            batch[:] = -1
    assert sorted(sum((batch.tolist() for batch in one.batches(shuffle=False)), [])) == list(range(5))


def test_a_framework_says_whether_batches_are_views(laid_out, session):
    rows = np.arange(64.0).reshape(8, 8)

    def is_view(views: str | None, shuffle: bool) -> tuple[bool, bool]:
        class Viewing(Framework):
            pass

        Viewing.views = views
        data = laid_out(rows, ranks=1)
        (batch,) = session(data=data, framework=Viewing(), counts={"worker": 1}).batches(batch_size=8, shuffle=shuffle)
        return np.shares_memory(batch, data[1].columns[0]), batch.flags.writeable

    assert is_view("read-only", False) == (True, False)
    assert is_view("writable", False) == (True, True)
    assert is_view(None, False) == is_view("read-only", True) == (False, True)


def test_gathered_batches_are_in_memory_of_the_framework(laid_out, session):
    class Pinning(Framework):
        views = None

        def __init__(self) -> None:
            self.made: list[np.ndarray] = []

        def empty(self, size: int) -> np.ndarray:
            self.made.append(np.empty(size, np.uint8))
            return self.made[-1]

    framework = Pinning()
    one = session(data=laid_out(Y, ranks=1), framework=framework, counts={"worker": 1})
    for batch in one.batches(batch_size=5):
        assert any(np.shares_memory(batch, memory) for memory in framework.made)


def test_rows_of_other_hosts_are_fetched(pool, table_of, mapped, session, fake_link):
    parts = [[np.arange(10)], [np.arange(10, 16)]]
    table = table_of(parts, owner=np.array([0, 1]), host_of_rank=np.array([0, 1]))
    seen = []
    for rank in range(2):
        link = fake_link()
        link.elsewhere = {1 - rank: parts[1 - rank][0]}
        rows = mapped(table, {rank: Segment(parts[rank])})
        one = session("worker", rank, link=link, data=(table, rows))
        seen += [row for batch in one.batches(batch_size=8, seed=4) for row in batch.tolist()]
        asked = {entry for entry in link.streams if entry[0] == "rows"}
        assert asked == ({("rows", Stream(0, 0, 0, True, 4))} if rank else set())  # of 8 rows 5 lie on the first host
        del one, rows
    assert sorted(seen) == list(range(16))


def test_rows_by_their_numbers_are_for_torch_and_for_data_that_stays(laid_out, session):
    with pytest.raises(ValueError, match="Role 'worker' was given no data"):
        session().torch_dataset()
    with pytest.raises(ValueError, match="framework='numpy' has no torch data sets"):
        session(data=laid_out(X)).torch_dataset()
    with pytest.raises(ValueError, match="out of data that is streamed"):
        session(data=laid_out(X, window=1)).torch_dataset()


def test_a_data_set_that_is_streamed_comes_in_groups(pool, table_of, mapped, session, fake_link):
    parts = [[np.arange(4)], [np.arange(4, 8)], [np.arange(8, 11)]]
    table = table_of(parts, window=2)
    link = fake_link()
    link.groups = [mapped(table, {n: Segment(parts[n]) for n in numbers}) for numbers in ((0, 1), (2,))]
    one = session(link=link, data=(table, None), counts={"worker": 1})
    batches = [batch.tolist() for batch in one.batches(epochs=2, batch_size=3, shuffle=False, seed=9)]
    assert batches == 2 * [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    streams = [Stream(0, 0, epoch, False, 9) for epoch in range(2)]
    assert link.streams == [
        entry for stream in streams for entry in (("open", stream, 0, 0), ("open", stream, 1, 0), ("leave", stream))
    ]
    taken = one.batches(batch_size=3, shuffle=False)
    assert next(taken).tolist() == [0, 1, 2]
    taken.close()
    assert link.streams[-1] == ("leave", Stream(0, 1, 0, False, 0)), "a loop that is left lets go of its groups"
    link.groups.clear()


def test_batches_are_the_frameworks_tensors(laid_out, session):
    class Listing(Framework):
        def to_batch(self, arrays: Any) -> Any:
            return tuple(array.tolist() for array in arrays)

    one = session(data=laid_out(Y, names=("y",)), framework=Listing())
    assert next(one.batches(batch_size=4, shuffle=False)) == {"y": [0, 1]}


def test_what_it_does_is_told(laid_out, session, fake_link):
    link = fake_link()
    one = session(link=link, data=laid_out(Y, ranks=1), counts={"worker": 1})
    for _ in one.batches(batch_size=5):
        one.should_stop()
    assert link.moves == [
        ("working on batch 1", 1),
        ("waiting for a batch", 0),
        ("working on batch 2", 1),
        ("waiting for a batch", 0),
        ("past its last batch", 0),
    ]
    assert link.notes == [], "what it does is its batch, also when it asks whether to stop"


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": -1}, {"batch_size": True}, {"epochs": 1.5}])
def test_counts_are_checked_before_the_first_batch(laid_out, wrong, session):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it is a whole number of at least 1"):
        session(data=laid_out(Y)).batches(**wrong)


def test_a_published_data_set(laid_out, session, fake_link):
    link = fake_link()
    link.datasets["test rows"] = laid_out(Y, ranks=1)
    one = session("scorer", link=link, counts={"scorer": 1})
    found = one.dataset("test rows")
    assert found.num_rows == 10
    assert [batch.tolist() for batch in found.batches(batch_size=6, shuffle=False)] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9],
    ]
    assert link.moves[0] == ("opening data set 'test rows'", 0)
    with pytest.raises(DataError, match="no data set 'mine'"):
        one.dataset("mine")


def test_a_loader_of_torch_is_told_what_it_can_read(laid_out, session):
    data = session(data=laid_out(X))._own_data()
    with pytest.raises(TypeError, match=r"For a DataLoader of torch, pass session\.torch_dataset"):
        len(data)
    assert data, "it is no empty container"


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_turn_that_is_left_goes_on_among_other_ranks_and_each_row_comes_once(laid_out, session, shuffle):
    accounts = [os.memfd_create("account") for _ in range(3)]
    data = laid_out(Y)
    ranks = [session(rank=rank, data=data, account=Account(accounts[rank])) for rank in range(2)]
    joined = session(rank=2, counts={"worker": 3}, data=data, account=Account(accounts[2]))
    given = {"batch_size": 3, "epochs": 2, "shuffle": shuffle, "seed": 7}
    wanted = [batch.tolist() for batch in session(counts={"worker": 1}, data=laid_out(Y, ranks=1)).batches(**given)]
    turns, found = [one.batches(**given) for one in ranks], []
    for _ in range(2):
        found.append(sorted(row for turn in turns for row in next(turn).tolist()))
    for one, turn in zip(ranks, turns, strict=True):
        one._go_on_among(3)
        turn.close()
    turns = [one.batches(**given, start=(0, 2)) for one in (*ranks, joined)]
    for shares in zip(*turns, strict=True):
        found.append(sorted(row for share in shares for row in share.tolist()))
    assert found == [sorted(batch) for batch in wanted]
    of_each = {
        ("worker", rank): [[BatchRange.of(record) for record in read_account(account)]]
        for rank, account in enumerate(accounts)
    }
    assert [(each.turn, each.size) for each in of_each["worker", 0][0]] == [(0, 2), (0, 3), (0, 3)]
    ledger = balance(of_each, {"worker": 2}, {("worker", 0): 10})
    assert (ledger.trained, ledger.dropped, ledger.repeated) == (20, 0, 0)
    for account in accounts:
        os.close(account)
