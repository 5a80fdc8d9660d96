"""Ranks that go on where one of them is lost: a thread each, through real shared memory."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

_found = importlib.util.spec_from_file_location("losing_ranks", Path(__file__).with_name("losing_ranks.py"))
_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_module)
Course, Lost, RestartError = _module.Course, _module.Lost, _module.RestartError
joined, lived, lived_with_losses = _module.joined, _module.lived, _module.lived_with_losses

SIZE, STEPS = 3, 6


def train(course, rank, dies, steps=STEPS):
    """Sum and gather, by the rank's own number, which grows; ``dies(step, point)`` tells when the rank is lost."""
    with closing(joined(course, rank)) as group:
        channel = group.channel([(5,), ()], "f8")
        state = {"weights": np.zeros(5), "own": float(rank), "step": 0}

        def at_border():
            group.border(state["step"], lambda: (state["weights"].copy(), state["step"]))

        def look(point):
            if dies(state["step"], point):
                raise Lost

        if group.received is None:
            group.mirror(0, repr(state["own"]).encode())
            at_border()
        else:
            weights, step = group.received.shared
            state = {"weights": weights, "own": float(group.received.own), "step": step}
            at_border()
        if state["step"] == 0:
            group.confirm()
        while state["step"] < steps:
            look("gather")
            (rows,) = group.gather("rows", [np.full((rank, 2), state["own"])])  # the first rank has none
            look("mirror")
            state["own"] += 0.1 * len(rows)
            group.mirror(state["step"] + 1, repr(state["own"]).encode())
            look("sum")
            total, one = group.sum(channel, [np.arange(5) * state["own"] + rows.sum(), np.ones(())], weight=0.3)
            state["weights"], state["step"] = state["weights"] + total / one, state["step"] + 1
            look("border")
            at_border()
        group.confirm()
        return state


def run(in_threads, *losses, in_meetings=()):
    """What ranks come to of which these are lost, as (rank, step, point); and who was replaced how often."""
    course = Course(SIZE, lost_in_meetings=in_meetings)
    return lived_with_losses(in_threads, course, losses, lambda rank, dies: train(course, rank, dies))


@pytest.fixture(scope="module")
def undisturbed(in_threads):
    return run(in_threads)[0]


@pytest.mark.parametrize("point", ["gather", "mirror", "sum", "border"])
@pytest.mark.parametrize("step", [0, 3, STEPS - 1])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_lost_rank_changes_nothing(in_threads, undisturbed, rank, step, point):
    # Behind the sum of a step the rank is one step further than where it was before.
    found, attempts = run(in_threads, (rank, step + (point == "border"), point))
    for state, wanted in zip(found, undisturbed, strict=True):
        np.testing.assert_array_equal(state["weights"], wanted["weights"])
        assert (state["own"], state["step"]) == (wanted["own"], wanted["step"])
    assert attempts == [int(each == rank) for each in range(SIZE)]


@pytest.mark.parametrize(
    "losses",
    [
        [(0, 2, "sum"), (1, 2, "sum")],
        [(0, 2, "gather"), (2, 2, "sum")],
        [(1, 2, "gather"), (1, 2, "sum")],  # the newcomer, in the same step
        [(1, 2, "sum"), (0, 2, "border"), (2, 4, "gather"), (1, 4, "mirror")],
    ],
)
def test_several_lost_ranks_change_nothing(in_threads, undisturbed, losses):
    losses = [(rank, step + (point == "border"), point) for rank, step, point in losses]
    found, attempts = run(in_threads, *losses)
    for state, wanted in zip(found, undisturbed, strict=True):
        np.testing.assert_array_equal(state["weights"], wanted["weights"])
        assert state["own"] == wanted["own"]
    assert sum(attempts) == len(losses)


@pytest.mark.parametrize("in_meetings", [[(0, 2)], [(1, 2)], [(2, 2)], [(0, 2), (1, 2)], [(2, 2), (0, 3), (1, 4)]])
@pytest.mark.timeout(50)  # else one that waits is told of the loss after a minute
def test_who_is_lost_while_all_meet_is_replaced_too(in_threads, undisturbed, in_meetings):
    found, attempts = run(in_threads, (1, 3, "sum"), in_meetings=in_meetings)
    for state, wanted in zip(found, undisturbed, strict=True):
        np.testing.assert_array_equal(state["weights"], wanted["weights"])
        assert state["own"] == wanted["own"]
    assert sum(attempts) == 1 + len(in_meetings)


@pytest.mark.parametrize(
    ("own", "width", "why"),
    [(None, 1, "what was worker 1's own is not in its mirror"), (b"own", 2, "can't follow: it makes gather of")],
)
def test_all_start_again_where_a_successor_could_not_follow(in_threads, own, width, why):
    """Without a mirror; or where it makes another call than the others did."""
    course, reasons = Course(SIZE), []

    def life(rank):
        try:
            with closing(joined(course, rank)) as group:
                begins = group.received is None
                if begins:
                    group.mirror(0, own)
                group.border(0, lambda: "weights")
                group.confirm()
                group.gather("made", [np.zeros((1, 1 if begins else width))])
                if rank == 1 and begins:
                    raise Lost
                group.gather("interrupted", [np.zeros((1, 3))])
        except RestartError as restart:
            reasons.append(str(restart))
            course.end_all()

    lived(in_threads, course, life)
    assert why in reasons[0]


def test_all_start_again_where_others_have_met_in_their_old_number(in_threads):
    """As where one has heard of a loss before all met in their new number, and the lost one's process lives on."""
    course, reasons = Course(2, most=3), []

    def life(rank):
        try:
            with closing(joined(course, rank)) as group:
                group.mirror(0, b"own")
                group.border(0, lambda: "weights")
                group.confirm()
                if rank == 0:
                    group.meet_others(3)
                else:
                    group._meet_again()
                return group.size
        except RestartError as restart:
            reasons.append(str(restart))
            course.end_all()

    assert lived(in_threads, course, life) == [None, 2, None]
    assert "2 workers have met where 3 were to continue" in reasons


@pytest.mark.parametrize("lost_in", [0, 1, 2, 3])
def test_exchanges_are_made_again_and_answered(in_threads, lost_in):
    """Two channels take turns, and the others are up to two calls ahead of what the successor goes through."""
    course, left = Course(SIZE), [lost_in]

    def life(rank):
        with closing(joined(course, rank)) as group:
            channels, found = [group.channel([(SIZE,)], "i8") for _ in range(2)], []
            if group.received is None:
                group.mirror(0, b"own")
            group.border(0, lambda: "weights")
            group.confirm()
            for number in range(5):
                if rank == 1 and left == [number]:
                    left.clear()
                    raise Lost
                places = [slice(each, each + 1) for each in range(SIZE)]
                (everyones,) = group.exchange(channels[number % 2], np.array([10 * number + rank]), places)
                found.append(everyones.tolist())
            group.confirm()
            return found

    wanted = [[10 * number + rank for rank in range(SIZE)] for number in range(5)]
    assert lived(in_threads, course, life) == [wanted] * SIZE


def test_all_start_again_where_a_successor_goes_another_way_later_on(in_threads):
    course, reasons = Course(SIZE), []

    def life(rank):
        try:
            with closing(joined(course, rank)) as group:
                begins, channel = group.received is None, group.channel([()], "f8")
                if begins:
                    group.mirror(0, b"own")
                group.border(0, lambda: "weights")
                group.confirm()
                if begins and rank == 1:
                    raise Lost
                group.gather("interrupted", [np.zeros((1, 3))])
                if begins:
                    group.sum(channel, [np.ones(())])
                else:
                    group.confirm()
        except RestartError as restart:
            reasons.append(str(restart))
            course.end_all()

    lived(in_threads, course, life)
    assert "other calls than one that was replaced" in " ".join(reasons)
