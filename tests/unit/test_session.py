"""What a user's function sees, with a link that keeps what it is told."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_train.data.account import Account, read_account
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import DataError
from dask_train.frameworks.base import Framework, Me
from dask_train.roles import AddressBook
from dask_train.session import MAX_TEXT, Equipment, Session

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


class FakeLink:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.stop_reason = ""
        self.reports: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.moves: list[tuple[str, int]] = []
        self.datasets: dict[str, Any] = {}
        self.elsewhere: Any = None  # of the partitions that are not here, by number
        self.groups: list[Any] = []
        self.streams: list[tuple[Any, ...]] = []
        self.waited = 0

    def report(self, scores: dict[str, Any]) -> None:
        self.reports.append(scores)

    def ask_to_stop(self, reason: str) -> None:
        self.asked.append(reason)

    def moved(self, doing: str, *, batches: int = 0) -> None:
        self.moves.append((doing, batches))

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


@pytest.fixture
def laid_out(pool, table_of, mapped) -> Callable[..., Any]:
    """A data set of one partition, mapped, with its table; for a role of two."""

    def lay_out(*arrays: np.ndarray, ranks: int = 2, **shape: Any) -> Any:
        table = table_of([arrays], host_of_rank=np.zeros(ranks, np.int64), **shape)
        return table, mapped(table, {0: Segment(arrays)})

    return lay_out


def session(role: str = "worker", rank: int = 0, *, link: FakeLink | None = None, **more: Any) -> Session:
    counts = more.pop("counts", {"worker": 2})
    me = Me(role=role, rank=rank, counts=counts, host="h", num_threads=1)
    settings = {
        "attempt": 0,
        "framework": Framework(),
        "peers": AddressBook(),
        "extras": {},
        "data": None,
        "checkpoint": None,
    }
    account = more.pop("account", None) or Account(os.memfd_create("account"))
    equipment = Equipment(scratch=Path("scratch"), account=account, **(settings | more))
    return Session(link or FakeLink(), me, equipment)


# Who it is


def test_who_it_is():
    one = session("worker", 1, counts={"ps": 1, "worker": 3}, attempt=2, peers=AddressBook(ps=["h:1"]))
    assert (one.role, one.rank, one.size, one.attempt) == ("worker", 1, 3, 2)
    assert (one.peers, one.scratch, one.global_rows) == ({"ps": ["h:1"]}, Path("scratch"), 0)


@pytest.mark.parametrize(
    ("counts", "chief"),
    [
        ({"ps": 1, "worker": 2}, "worker/0"),
        ({"worker": 2, "chief": 1}, "chief/0"),
        ({"explorer": 2, "learner": 1}, "explorer/0"),
    ],
)
def test_one_role_of_a_run_is_the_chief(counts, chief):
    chiefs = [
        f"{role}/{rank}"
        for role, count in counts.items()
        for rank in range(count)
        if session(role, rank, counts=counts).is_chief
    ]
    assert chiefs == [chief]


# Batches


def test_batches_of_all_ranks_are_the_rows(laid_out):
    seen = []
    for rank in range(2):
        one = session("worker", rank, data=laid_out(X, Y, is_tuple=True))
        for x, y in one.batches(epochs=2, batch_size=4, shuffle=True, seed=3):
            np.testing.assert_array_equal(x[:, 0], 2 * y)
            seen += y.tolist()
    assert sorted(seen) == sorted([*range(10), *range(10)])


def test_rows_of_the_global_batch_are_told(laid_out):
    one = session(data=laid_out(Y))
    found = [(batch.tolist(), one.global_rows) for batch in one.batches(batch_size=4, shuffle=False)]
    assert found == [([0, 1], 4), ([4, 5], 4), ([8], 2)]


def test_what_is_taken_is_accounted_for(laid_out):
    file = os.memfd_create("account")
    one = session(data=laid_out(Y), account=Account(file))
    taken = iter(one.batches(epochs=2, batch_size=3))
    for _ in range(6):
        next(taken)
    assert read_account(file) == [[0, 0, 0, 3, 0, 4, 4], [0, 0, 1, 3, 0, 2, 1]]
    taken.close()  # as the end of a loop that is left
    assert read_account(file)[1] == [0, 0, 1, 3, 0, 2, 2]
    for _ in one.batches(batch_size=4, start=(0, 1)):
        one._account.seal()  # the function raises here
        break
    assert read_account(file)[2] == [0, 1, 0, 4, 1, 1, 0]
    os.close(file)


def test_checkpoints_need_a_place():
    for call in (lambda one: one.save_checkpoint(print), lambda one: one.load_checkpoint()):
        with pytest.raises(ValueError, match=r"no place for checkpoints. Pass it: train\(..., checkpoint="):
            call(session())


def test_it_goes_on_from_a_position(laid_out):
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
def test_a_batch_has_the_shape_of_what_was_given(laid_out, shape, kind):
    (batch, *_) = session(data=laid_out(X, **shape)).batches(batch_size=10, shuffle=False)
    assert isinstance(batch, kind)
    array = batch["x"] if kind is dict else batch[0] if kind is tuple else batch
    np.testing.assert_array_equal(array, X[:5])


@pytest.mark.parametrize("shuffle", [True, False])
def test_writing_to_a_batch_changes_no_rows(laid_out, shuffle):
    data = laid_out(Y.copy())
    one = session(data=data)
    for batch in one.batches(epochs=2, batch_size=4, shuffle=shuffle):
        assert batch.flags.c_contiguous
        if batch.flags.writeable:
            batch[:] = -1
    assert sorted(sum((batch.tolist() for batch in one.batches(shuffle=False)), [])) == list(range(5))


def test_a_framework_says_whether_batches_are_views(laid_out):
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


def test_gathered_batches_are_in_memory_of_the_framework(laid_out):
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


def test_rows_of_other_hosts_are_fetched(pool, table_of, mapped):
    parts = [[np.arange(10)], [np.arange(10, 16)]]
    table = table_of(parts, owner=np.array([0, 1]), host_of_rank=np.array([0, 1]))
    seen = []
    for rank in range(2):
        link = FakeLink()
        link.elsewhere = {1 - rank: parts[1 - rank][0]}
        rows = mapped(table, {rank: Segment(parts[rank])})
        one = session("worker", rank, link=link, data=(table, rows))
        seen += [row for batch in one.batches(batch_size=8, seed=4) for row in batch.tolist()]
        asked = {entry for entry in link.streams if entry[0] == "rows"}
        assert asked == ({("rows", Stream(0, 0, 0, True, 4))} if rank else set())  # of 8 rows 5 lie on the first host
        del one, rows
    assert sorted(seen) == list(range(16))


def test_a_data_set_that_is_streamed_comes_in_groups(pool, table_of, mapped):
    parts = [[np.arange(4)], [np.arange(4, 8)], [np.arange(8, 11)]]
    table = table_of(parts, window=2)
    link = FakeLink()
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


def test_batches_are_the_frameworks_tensors(laid_out):
    class Listing(Framework):
        def to_batch(self, arrays: Any) -> Any:
            return tuple(array.tolist() for array in arrays)

    one = session(data=laid_out(Y, names=("y",)), framework=Listing())
    assert next(one.batches(batch_size=4, shuffle=False)) == {"y": [0, 1]}


def test_what_it_does_is_told(laid_out):
    link = FakeLink()
    one = session(link=link, data=laid_out(Y, ranks=1), counts={"worker": 1})
    for _ in one.batches(batch_size=5):
        one.should_stop()
    assert link.moves == [
        ("working on batch 1", 1),
        ("working on batch 1", 0),
        ("waiting for a batch", 0),
        ("working on batch 2", 1),
        ("working on batch 2", 0),
        ("waiting for a batch", 0),
        ("past its last batch", 0),
    ]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": -1}, {"batch_size": True}, {"epochs": 1.5}])
def test_counts_are_checked_before_the_first_batch(laid_out, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it is a whole number of at least 1"):
        session(data=laid_out(Y)).batches(**wrong)


def test_a_role_without_data():
    with pytest.raises(ValueError, match=r"'scorer' was given no data. Pass it: train\(..., data={'scorer': \(X, y\)}"):
        session("scorer", counts={"scorer": 1}).batches()


def test_a_published_data_set(laid_out):
    link = FakeLink()
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


# Scores


class Tensor:
    """As TensorFlow's: no item(), and numpy()."""

    def __init__(self, value: Any) -> None:
        self._value = np.array(value)
        self.shape = self._value.shape

    def numpy(self) -> Any:
        return self._value[()]


class Tracked:
    """As torch's with a gradient: an item(), and a numpy() that raises."""

    shape = ()

    def item(self) -> float:
        return 0.25

    def numpy(self) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, 1),
        (0.5, 0.5),
        (True, True),
        (None, None),
        ("text", "text"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(0.5), 0.5),
        (Tensor(0.5), 0.5),
        (Tracked(), 0.25),
        ("x" * 2 * MAX_TEXT, "x" * MAX_TEXT),
    ],
)
def test_scores_are_plain_values(value, plain):
    link = FakeLink()
    session(link=link).report(score=value)
    (told,) = link.reports
    assert told["score"] == plain
    assert isinstance(told["score"], type(plain))


def test_scores_say_where_they_are_from():
    link = FakeLink()
    before = time.time()
    session("worker", 1, link=link, attempt=2).report(loss=0.5, step=7)
    (told,) = link.reports
    assert before <= told.pop("time") <= time.time()
    assert told == {"loss": 0.5, "step": 7, "role": "worker", "rank": 1, "attempt": 2}


@pytest.mark.parametrize("name", ["role", "rank", "attempt", "time"])
def test_names_that_are_taken(name):
    text = f"report() adds role, rank, attempt, time itself; name your {name!r} differently."
    with pytest.raises(ValueError, match=re.escape(text)):
        session().report(**{name: 1})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros(3), "ndarray"),
        (Tensor([1.0, 2.0]), "Tensor"),
        ([1], "list"),
        (1j, "complex"),
        (np.complex64(1), "complex64"),
        (np.datetime64("2020-01-01"), "datetime64"),
        (np.array(object()), "ndarray"),
    ],
)
def test_what_is_no_score(value, kind):
    link = FakeLink()
    text = re.escape(f"report(score=...) was given a {kind}; scores are numbers, strings, booleans or None.")
    with pytest.raises(TypeError, match=text):
        session(link=link).report(score=value)
    assert link.reports == []


# The end


def test_stop():
    link = FakeLink()
    one = session("worker", 1, link=link)
    assert one.should_stop() is False
    assert link.moves == [("asking whether to stop", 0)], "a question is progress"
    one.stop()
    one.stop("enough")
    assert link.asked == ["worker 1 asked the run to stop", "enough"]
    link.stop_reason = "loss < 0.1"
    assert one.should_stop() is True
    one.wait_until_stopped()
    assert (link.waited, link.moves[-1]) == (1, ("serving until it is stopped", 0))


# What frameworks add


def test_extras_are_there_and_made_when_they_are_asked_for():
    made = []
    one = session(extras={"cluster_spec": {"ps": ["h:1"]}, "server": lambda: made.append(1) or "the server"})
    assert (one.cluster_spec, made) == ({"ps": ["h:1"]}, [])
    assert [one.server, one.server, made] == ["the server", "the server", [1]]
    assert session(extras={"total": lambda: max}).total(1, 2) == 2, "what is made may be a function, too"
    with pytest.raises(AttributeError, match=r"gives nothing. It is there with framework='tensorflow'"):
        _ = session().server
