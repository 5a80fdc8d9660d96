"""A loop whose ranks become more and fewer, and are lost meanwhile: a thread each, through real shared memory."""

from __future__ import annotations

import importlib.util
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.collectives import mirror as mirror_module
from dask_train.collectives.calls import Calls
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.collectives.ring import Ring
from dask_train.data.ledger import balance
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import LeftError
from dask_train.trainers.common.task import LoopTask

_found = importlib.util.spec_from_file_location(
    "losing_ranks", Path(__file__).parents[2] / "collectives" / "losing_ranks.py"
)
_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_module)
Course, Lost, Moments, RestartError = _module.Course, _module.Lost, _module.Moments, _module.RestartError
joined, lived = _module.joined, _module.lived

ROWS, BATCH_SIZE, EPOCHS, SIZE = 40, 8, 3, 2  # five batches an epoch
LEFT = "left"


class Session:
    """What a loop sees of its run: batches are lists of row numbers, dealt among as many ranks as there are."""

    num_rows, peers, attempt = ROWS, {}, 0

    def __init__(self, rank, run, size):
        self.rank, self.size = rank, size
        self._link = SimpleNamespace(spent=TimeSpent(), start_all_again=run.start_all_again, wanted_size=0)

    def batches(self, *, epochs, batch_size, shuffle, seed, start):
        for epoch in range(start[0], epochs):
            order = np.random.default_rng([seed, epoch]).permutation(ROWS)
            for at in range(start[1] * batch_size if epoch == start[0] else 0, ROWS, batch_size):
                yield order[at : at + batch_size][self.rank :: self.size]

    def _go_on_among(self, size):
        self.size = size

    def report(self, **scores):
        pass

    def should_stop(self):
        return False


def train(session, group, sizes, told, dies):
    """Add up rows, over all in ``total``, and in the running epoch of the own rank; told of another size by steps.

    ``calls`` is alike between two steps, and changes within one, before the sum: as what calls of a model change.
    """
    agreement, mirror, confirm = GroupAgreement(group), group.mirror, group.confirm
    group.mirror = lambda border, own: (dies("mirror", border), mirror(border, own))
    group.confirm = lambda: (dies("confirm", loop.position.steps), confirm())
    loop = TrainingLoop(LoopTask(epochs=EPOCHS, batch_size=BATCH_SIZE, run="this"), session, agreement)
    found = SimpleNamespace(total=0, counted=0, own=0, calls=0)

    def share_own():
        dies("before", loop.position.steps)
        everyones = agreement.of_all(found.own)
        found.own = 0 if agreement.rank else sum(everyones)

    def deal_again():
        dies("after", loop.position.steps)
        loop.deal_again()

    def hear(now):
        if agreement.rank == 0 and now in sizes:
            session._link.wanted_size = told["size"] = sizes[now]

    def part(name):
        return lambda: getattr(found, name), lambda value: setattr(found, name, value)

    state = RankState().shared("total", *part("total")).shared("counted", *part("counted"), within_epoch=True, led=True)
    state.shared("calls", *part("calls")).passing("calls in step", *part("calls"))
    loop.on_resize(share_own, deal_again)
    dies("built", loop.position.steps)
    loop.keep(state.own("own", *part("own")))
    dies("joined", loop.position.steps)
    for _ in loop.epochs():
        found.counted = found.counted if loop.position.batch else 0
        for rows in loop.batches():
            dies("step", loop.position.steps)
            found.own += int(rows.sum())
            found.calls += loop.position.steps + 1
            found.counted += loop.leads
            loop.mirror_step()
            dies("sum", loop.position.steps)
            found.total = found.total * 31 % 1_000_003 + sum(agreement.of_all(int((rows * rows).sum())))
            hear(loop.position.steps + 1)
            dies("border", loop.position.steps)
            loop.step_done()
        own = sum(agreement.of_all(found.own))
        hear(f"epoch {loop.position.epoch}")
        loop.epoch_done(total=found.total, counted=found.counted, own=own)
    outcome = loop.outcome(lambda: {"total": found.total})
    agreement.replaceable.confirm()
    assert found.calls == sum(range(loop.position.steps + 1)), "each step's calls count once"
    return found.total, outcome and (outcome.history, outcome.epoch, outcome.steps, outcome.applied)


def trained(in_threads, sizes, *losses, hosts=None, moments=None):
    """What ranks come to where others are wanted at these steps, and ranks are lost at ``(rank, point, steps)``.

    They are on one host, or by rank on these. ``moments`` may end one as well.
    """
    course, left, told = Course(SIZE, max([SIZE, *sizes.values()]), hosts=hosts), list(losses), {}

    def life(rank):
        def dies(point, steps):
            if moments is not None:
                moments.mark(rank, point, steps)
            if (rank, point, steps) in left:
                left.remove((rank, point, steps))
                raise Lost

        if moments is not None:
            moments.own.rank = rank
        session = Session(rank, course.of(rank), SIZE)
        session._link.wanted_size = told.get("size", 0) if rank == 0 else 0  # a first rank is told again
        try:
            with closing(joined(course, rank)) as group:
                session._go_on_among(group.size)
                found = train(session, group, sizes, told, dies)
        except LeftError:
            return LEFT
        except RestartError:
            return None  # the others have ended before it could join
        if rank == 0:
            course.let_none_join()
        return found

    found = lived(in_threads, course, life)
    assert not left, "all were lost that should be"
    return found, course.why_again or course.attempts


@pytest.fixture(scope="module")
def fixed(in_threads):
    """What ranks come to that stay two."""
    return trained(in_threads, {})[0]


def check(found, fixed, size):
    (total, (history, epochs, steps, _)), (wanted, told) = found[0], fixed[0]
    assert (total, history, epochs, steps) == (wanted, *told[:3])
    assert [each[0] for each in found[:size]] == [wanted] * size
    assert set(found[size:]) <= {LEFT, None}


def trained_rows(applied):
    """Rows of each epoch, as the ledger has them of what ranks have taken."""
    accounts = {("worker", rank): [taken] for rank, taken in applied.items()}
    ledger = balance(accounts, {"worker": SIZE}, {("worker", 0): ROWS})
    assert ledger.dropped == 0
    return [sum(line.trained for line in ledger.lines if line.epoch == epoch) for epoch in range(EPOCHS)]


@pytest.mark.parametrize(
    ("sizes", "size", "first"),
    [
        ({2: 3}, 3, (0, 2)),
        ({1: 4}, 4, (0, 1)),
        ({"epoch 1": 3}, 3, (2, 0)),
        ({2: 4, 3: 3}, 3, (0, 2)),
        ({14: 3}, 3, (2, 4)),
    ],
    ids=[
        "within an epoch",
        "at the first step",
        "at the end of an epoch",
        "more and fewer",
        "at the last but one step",
    ],
)
def test_ranks_join_and_leave_and_come_to_the_same(in_threads, fixed, sizes, size, first):
    found, attempts = trained(in_threads, sizes)
    check(found, fixed, size)
    applied = found[0][1][3]
    assert trained_rows(applied) == [ROWS] * EPOCHS
    assert (applied[2][0].epoch, applied[2][0].first, applied[2][0].size) == (*first, max(sizes.values()))
    assert not any(attempts)


@pytest.mark.parametrize("steps", [15, "epoch 2"])
def test_at_the_end_nobody_joins_any_more(in_threads, fixed, steps):
    found, _ = trained(in_threads, {steps: 3})
    check(found, fixed, 2)
    assert found[2] is None


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("point", "steps"), [("step", 2), ("sum", 2), ("border", 2), ("before", 3), ("after", 3), ("step", 3), ("step", 4)]
)
def test_one_that_is_lost_while_others_join_is_replaced(in_threads, fixed, rank, point, steps):
    found, attempts = trained(in_threads, {3: 3}, (rank, point, steps))
    check(found, fixed, 3)
    assert trained_rows(found[0][1][3]) == [ROWS] * EPOCHS
    assert attempts == [int(each == rank) for each in range(3)]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", ["mirror", "confirm"])
def test_one_that_is_lost_with_its_mirror_for_those_that_join_in_hand_is_replaced(in_threads, fixed, rank, point):
    loss = (rank, point, 6) if point == "mirror" else (rank, "confirm", 5)  # the border after that of the fifth step
    found, attempts = trained(in_threads, {"epoch 0": 3}, loss)
    check(found, fixed, 3)
    assert attempts == [int(each == rank) for each in range(3)]


@pytest.mark.parametrize(("point", "steps"), [("built", 0), ("joined", 3), ("step", 3), ("sum", 3), ("sum", 4)])
def test_one_that_has_joined_and_is_lost_is_replaced(in_threads, fixed, point, steps):
    found, attempts = trained(in_threads, {3: 3}, (2, point, steps))
    check(found, fixed, 3)
    assert attempts == [0, 0, 1]


def test_one_that_has_joined_without_a_mirror_is_not_replaced(in_threads, monkeypatch):
    """Else it would be given what calls of the step in hand have changed in the others."""
    monkeypatch.setattr(mirror_module, "MOST_BYTES", 10)
    _, why = trained(in_threads, {3: 3}, (2, "step", 3))
    assert why == "what was worker 2's own is not in its mirror"


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("point", ["before", "sum"])
def test_one_that_is_lost_while_another_leaves_is_replaced(in_threads, fixed, rank, point):
    steps = 6 if point == "before" else 5
    found, attempts = trained(in_threads, {2: 3, 6: 2}, (rank, point, steps))
    check(found, fixed, 2)
    assert found[2] == LEFT
    assert attempts == [int(each == rank) for each in range(3)]


# Over hosts

LAYOUTS = {"a host comes": [0, 0, 1, 1], "joins": [0, 1, 1, 0], "one each": [0, 1, 2, 3], "leads": [0, 1, 0, 2]}


@pytest.mark.parametrize("hosts", LAYOUTS.values(), ids=LAYOUTS)
def test_ranks_join_and_leave_over_hosts_and_come_to_the_same(in_threads, fixed, hosts):
    found, attempts = trained(in_threads, {2: 3, 6: 4, 9: 2}, hosts=hosts)
    check(found, fixed, 2)
    assert trained_rows(found[0][1][3]) == [ROWS] * EPOCHS
    assert not any(attempts)


@pytest.mark.parametrize("point", ["joined", "step", "sum"])
def test_one_that_has_joined_from_another_host_and_is_lost_is_replaced(in_threads, fixed, point):
    found, attempts = trained(in_threads, {3: 3}, (2, point, 3), hosts=LAYOUTS["one each"])
    check(found, fixed, 3)
    assert attempts == [0, 0, 1]


@pytest.mark.parametrize(("hosts", "most"), [([0, 0, 1], 2), ([0, 0, 0], 1)])
def test_on_how_many_hosts_ranks_have_been_is_known_also_to_one_that_comes_later(
    in_threads, fixed, monkeypatch, hosts, most
):
    outcome, found_most = TrainingLoop.outcome, {}

    def ending(loop, taken):
        found_most[loop._agreement.rank] = loop._agreement.replaceable.most_hosts
        return outcome(loop, taken)

    monkeypatch.setattr(TrainingLoop, "outcome", ending)
    found, _ = trained(in_threads, {1: 3, 6: 2}, (0, "step", 9), hosts=hosts)
    check(found, fixed, 2)
    assert found_most == {0: most, 1: most}


CHANGES = {"joins": ({3: 3}, 3), "leaves": ({1: 3, 6: 2}, 2), "two leave": ({1: 4, 6: 2}, 2)}


def check_each_moment(in_threads, fixed, moments, change, hosts, rank, every):
    """Lose a rank at moments of a change, from the end of the step before to the sum of the one after."""
    sizes, size = CHANGES[change]
    steps = max(sizes)
    moments.begin()
    trained(in_threads, sizes, hosts=hosts, moments=moments)
    marks, last = moments.marks, moments.counts[rank]
    first = marks.get((rank, "border", steps - 1), 0)
    for moment in range(first + 1, marks.get((rank, "sum", steps), last) + 1, every):
        moments.begin((rank, moment))
        found, attempts = trained(in_threads, sizes, hosts=hosts, moments=moments)
        assert not isinstance(attempts, str), f"lost at moment {moment}: {attempts}"
        check(found, fixed, size)
        assert trained_rows(found[0][1][3]) == [ROWS] * EPOCHS, f"lost at moment {moment}"
        assert sum(attempts) == moments.lost


@pytest.fixture
def moments(monkeypatch):
    return Moments(monkeypatch)


SOME = [("joins", "leaves", 1), ("one each", "joins", 0), ("a host comes", "two leave", 2)]
ALL = [
    (hosts, change, rank) for hosts in LAYOUTS for change in CHANGES for rank in range(max(CHANGES[change][0].values()))
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("hosts", "change", "rank", "every"),
    [
        (*SOME[0], 9),
        *(pytest.param(*each, 9, marks=pytest.mark.nightly) for each in SOME[1:]),
        *(pytest.param(*each, 3, marks=pytest.mark.nightly) for each in ALL),
    ],
)
def test_one_that_is_lost_at_any_moment_of_a_change_over_hosts_is_replaced(
    in_threads, fixed, moments, hosts, change, rank, every
):
    check_each_moment(in_threads, fixed, moments, change, LAYOUTS[hosts], rank, every)


class LastCall:
    """Ends a rank in the last call before others continue in another number, when it knows that all have begun it."""

    def __init__(self, monkeypatch, rank, last_size):
        self.rank, self.own, self.behind = rank, threading.local(), set()
        meet, confirm, made = Ring.meet, ReplaceableGroup.confirm_last, Calls.made

        def meeting(ring):
            meet(ring)
            if getattr(self.own, "is_in_it", False) and self.own.is_lost:
                self.rank = None
                raise Lost

        def confirming(group, size):
            self.own.is_in_it, self.own.rank = True, group.rank
            self.own.is_lost = (group.rank, size) == (self.rank, last_size)
            try:
                confirm(group, size)
            finally:
                self.own.is_in_it = False

        def making(calls, text, results, channel=None):
            if sys._getframe(1).f_code.co_name == "confirm_last":
                self.behind.add(self.own.rank)
            made(calls, text, results, channel)

        monkeypatch.setattr(Ring, "meet", meeting)
        monkeypatch.setattr(ReplaceableGroup, "confirm_last", confirming)
        monkeypatch.setattr(Calls, "made", making)


@pytest.mark.parametrize(
    ("hosts", "sizes", "rank", "behind"),
    [
        ([0, 1, 1], {3: 3}, 1, set()),
        ([0, 1, 1, 0], {1: 3, 6: 4}, 1, {2}),
        ([0, 1, 0], {1: 3, 6: 2}, 0, set()),
        ([0, 1, 1, 1], {1: 4, 6: 3}, 1, {2}),
        ([0, 0, 1], {1: 3, 6: 2}, 0, {1}),
        ([0, 1, 2], {1: 3, 6: 2}, 1, set()),
    ],
    ids=[
        "alone",
        "another joins",
        "who is behind leaves",
        "some leave",
        "only who leaves has completed it",
        "the next host leaves",
    ],
)
def test_who_is_in_the_last_call_continues_with_those_that_have_completed_it(
    in_threads, fixed, monkeypatch, hosts, sizes, rank, behind
):
    """Where the leader of its host is lost, which alone knew that all had come to it."""
    size = [*sizes.values()][-1]
    last = LastCall(monkeypatch, rank, size)
    found, attempts = trained(in_threads, sizes, hosts=hosts)
    check(found, fixed, size)
    assert trained_rows(found[0][1][3]) == [ROWS] * EPOCHS
    assert last.behind == behind
    assert attempts == [int(each == rank) for each in range(len(hosts))]
