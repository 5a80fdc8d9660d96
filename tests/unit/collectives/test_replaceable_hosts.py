"""Ranks of several hosts that go on where one is lost: a thread each, through real shared memory and sockets."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dask_train.collectives import ring as ring_module
from dask_train.collectives.replaceable import ReplaceableGroup

_found = importlib.util.spec_from_file_location("losing_ranks", Path(__file__).with_name("losing_ranks.py"))
_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_module)
Course, Lost, Moments, RestartError = _module.Course, _module.Lost, _module.Moments, _module.RestartError
joined, lived, lived_with_losses = _module.joined, _module.lived, _module.lived_with_losses

STEPS = 4
LAYOUTS = {"two by two": [0, 0, 1, 1], "one each": [0, 1], "one and two": [0, 1, 1], "three": [0, 1, 2]}


def train(course, rank, dies, steps=STEPS, *, refuses=False):
    """Make calls of all kinds in each step; ``dies(step, point)`` tells when the rank is lost.

    One that ``refuses`` takes back what it has mirrored, as where it has changed since.
    """
    with closing(joined(course, rank)) as group:
        size = group.size
        channel, flags = group.channel([(5,), ()], "f8"), group.channel([(2,)], "f8")
        state = {"weights": np.zeros(5), "own": float(rank), "step": 0}

        def at_border():
            group.border(state["step"], lambda: (state["weights"].copy(), state["step"]))

        def look(point):
            if dies(state["step"], point):
                raise Lost

        if group.received is None:
            group.gather("resumes", [np.zeros((1, 1))])
            group.mirror(0, repr(state["own"]).encode())
            at_border()
            look("beginning")
            group.confirm()
        else:
            weights, step = group.received.shared
            state = {"weights": weights, "own": float(group.received.own), "step": step}
            at_border()
            if step == 0:
                group.confirm()
        while state["step"] < steps:
            look("flags")
            (told,) = group.broadcast(flags, [np.array([state["step"], state["own"]])], root=0)
            look("gather")
            (rows,) = group.gather("rows", [np.full((rank % 2, 2), state["own"])])  # some have none
            look("mirror")
            state["own"] += 0.1 * len(rows) + 0.01 * float(told[1])
            group.mirror(state["step"] + 1, repr(state["own"]).encode())
            look("sum")
            mine = [np.arange(5) * state["own"] + rows.sum(), np.ones(())]
            total, one = group.sum(channel, mine, weight=0.3)
            look("summed")
            state["weights"], state["step"] = state["weights"] + total / one, state["step"] + 1
            look("border")
            if refuses:
                group.mirror(state["step"], None)
            at_border()
        look("end")
        group.confirm()
        assert group.size == size
        return state["weights"].tolist(), state["own"], state["step"]


def run(in_threads, hosts, *losses, in_meetings=(), refuses=()):
    """What ranks come to of which these are lost, as (rank, step, point); and who was replaced how often."""
    layout = LAYOUTS[hosts] if isinstance(hosts, str) else hosts
    size = 3 if callable(layout) else len(layout)
    course = Course(size, lost_in_meetings=in_meetings, hosts=layout)

    def life(rank, dies):
        return train(course, rank, dies, refuses=rank in refuses)

    return lived_with_losses(in_threads, course, losses, life)


@pytest.fixture(scope="module")
def undisturbed(in_threads):
    return {name: run(in_threads, name)[0] for name in LAYOUTS}


POINTS = [(point, 2) for point in ("flags", "gather", "mirror", "sum", "summed")] + [("border", 3), ("end", STEPS)]


@pytest.mark.parametrize(("point", "step"), POINTS)
@pytest.mark.parametrize(
    ("hosts", "rank"),
    [
        *((name, rank) for name in ("two by two", "one each") for rank in range(len(LAYOUTS[name]))),
        *(pytest.param(name, rank, marks=pytest.mark.slow) for name in ("one and two", "three") for rank in range(3)),
    ],
)
def test_a_lost_rank_changes_nothing(in_threads, undisturbed, hosts, rank, point, step):
    found, attempts = run(in_threads, hosts, (rank, step, point))
    assert found == undisturbed[hosts]
    assert attempts == [int(each == rank) for each in range(len(LAYOUTS[hosts]))]


@pytest.mark.parametrize(("hosts", "rank"), [("one each", 0), ("one each", 1), ("two by two", 1), ("three", 2)])
def test_one_rank_alone_may_take_back_what_it_has_mirrored(in_threads, undisturbed, hosts, rank):
    found, attempts = run(in_threads, hosts, refuses=[rank])
    assert (found, sum(attempts)) == (undisturbed[hosts], 0)
    other = (rank + 1) % len(LAYOUTS[hosts])
    assert run(in_threads, hosts, (other, 2, "sum"), refuses=[rank])[0] == undisturbed[hosts]
    with pytest.raises(RestartError):
        run(in_threads, hosts, (rank, 2, "gather"), refuses=[rank])


@pytest.mark.parametrize("rank", range(4))
def test_who_is_lost_before_its_first_mirror_is_confirmed_is_replaced_where_another_rank_of_the_host_has_it(
    in_threads, undisturbed, rank
):
    found, attempts = run(in_threads, "two by two", (rank, 0, "beginning"))
    assert found == undisturbed["two by two"]
    assert attempts == [int(each == rank) for each in range(4)]


def test_all_start_again_where_the_only_rank_of_a_host_is_lost_before_its_first_mirror_is_confirmed(in_threads):
    with pytest.raises(RestartError):
        run(in_threads, "one each", (1, 0, "beginning"))


@pytest.mark.parametrize(
    ("hosts", "losses"),
    [
        ("two by two", [(2, 2, "sum"), (3, 2, "sum")]),
        ("two by two", [(0, 2, "gather"), (1, 2, "sum")]),
        ("two by two", [(0, 2, "sum"), (2, 2, "flags")]),
        ("one each", [(1, 2, "sum"), (0, 3, "border")]),
        ("one each", [(0, 2, "flags"), (0, 2, "mirror")]),
        pytest.param("three", [(0, 2, "sum"), (1, 3, "sum"), (2, 3, "gather")], marks=pytest.mark.slow),
    ],
)
def test_several_lost_ranks_change_nothing(in_threads, undisturbed, hosts, losses):
    found, attempts = run(in_threads, hosts, *losses)
    assert found == undisturbed[hosts]
    assert sum(attempts) == len(losses)


@pytest.mark.parametrize(("hosts", "in_meetings"), [("two by two", [(3, 2)]), ("two by two", [(0, 2), (1, 3)])])
def test_who_is_lost_while_all_meet_is_replaced_too(in_threads, undisturbed, hosts, in_meetings):
    found, attempts = run(in_threads, hosts, (2, 2, "sum"), in_meetings=in_meetings)
    assert found == undisturbed[hosts]
    assert sum(attempts) == 1 + len(in_meetings)


def test_a_newcomer_may_come_on_another_host(in_threads, undisturbed):
    """What is summed over hosts has another order then: equal to rounding."""
    found, attempts = run(in_threads, lambda rank, attempt: [0, 0, 2][attempt] if rank == 2 else rank, (2, 2, "sum"))
    assert attempts == [0, 0, 1]
    for (weights, own, step), (wanted, *others) in zip(found, undisturbed["one and two"], strict=True):
        np.testing.assert_allclose(weights, wanted, rtol=1e-12)
        assert [own, step] == pytest.approx(others, rel=1e-12)


def test_who_waits_for_a_total_that_the_other_host_has_already_gets_it(in_threads, undisturbed, monkeypatch):
    """Its leader is lost with the total in hand: then the other host is a call ahead, beyond a border."""
    own, answered, add_up, answer = threading.local(), [], ring_module.Ring.__call__, ReplaceableGroup._answered
    left = [2]

    def adding_up(*args, **settings):
        add_up(*args, **settings)
        own.num_sums += 1
        if own.rank in left and own.num_sums == 3:
            left.clear()
            raise Lost

    def answering(group, text):
        answered.append((group.rank, text.partition(" ")[0]))
        return answer(group, text)

    monkeypatch.setattr(ring_module.Ring, "__call__", adding_up)
    monkeypatch.setattr(ReplaceableGroup, "_answered", answering)
    course = Course(4, hosts=LAYOUTS["two by two"])

    def life(rank):
        own.rank, own.num_sums = rank, 0
        return train(course, rank, lambda *_: False)

    assert lived(in_threads, course, life) == undisturbed["two by two"]
    assert (course.attempts, answered) == ([0, 0, 1, 0], [(3, "add")])


def moments_of(moments, in_threads, hosts, at=None, first=()):
    """What ranks come to where one is lost at a moment: rank and number; after these losses."""
    moments.begin(at)
    left, layout = list(first), LAYOUTS[hosts]
    course = Course(len(layout), hosts=layout)

    def life(rank):
        def dies(step, point):
            moments.mark(rank, step, point)
            if (rank, step, point) not in left:
                return False
            left.remove((rank, step, point))
            return True

        moments.own.rank = rank
        return train(course, rank, dies)

    return lived(in_threads, course, life), course.attempts


@pytest.fixture
def moments(monkeypatch):
    return Moments(monkeypatch)


ALL = [("two by two", rank) for rank in range(4)] + [("one and two", rank) for rank in range(3)] + [("three", 1)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("hosts", "rank", "every"),
    [
        ("one each", 0, 3),
        ("two by two", 2, 3),
        *(pytest.param(hosts, rank, 1, marks=pytest.mark.nightly) for hosts, rank in ALL),
    ],
)
def test_who_is_lost_at_any_moment_of_a_step_changes_nothing(in_threads, undisturbed, moments, hosts, rank, every):
    """Also at the last border; who is lost after that may find that others have returned."""
    moments_of(moments, in_threads, hosts)
    marks = moments.marks
    step = range(marks[rank, 1, "flags"] + 1, marks[rank, 2, "flags"] + 2, every)
    last = range(marks[rank, STEPS - 1, "sum"] + 1, marks[rank, STEPS, "end"] + 2, every)
    for moment in [*step, *last]:
        found, attempts = moments_of(moments, in_threads, hosts, (rank, moment))
        assert found == undisturbed[hosts], f"lost at moment {moment}"
        assert sum(attempts) == moments.lost


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("second", [0, 1, 2])
@pytest.mark.parametrize(("hosts", "first"), [("one and two", 1), ("one and two", 2), ("three", 0)])
def test_who_is_lost_at_any_moment_while_all_meet_changes_nothing(
    in_threads, undisturbed, moments, hosts, first, second
):
    """Equal, or all are to start again, as where two hosts are lost that have each other's mirrors; it never hangs."""
    loss = (first, 2, "sum")
    moments_of(moments, in_threads, hosts, first=[loss])
    num = moments.counts[second]
    again = 0
    for moment in range(moments.marks[second, 2, "sum"] + 1, num - 10, 2):
        try:
            found, attempts = moments_of(moments, in_threads, hosts, (second, moment), first=[loss])
        except RestartError:
            again += 1
            continue
        assert found == undisturbed[hosts], f"lost at moment {moment}"
        assert sum(attempts) == 1 + moments.lost
    assert again < num // 4
