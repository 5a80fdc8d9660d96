"""The state of a rank: what is shared, what is its own, and what means something within an epoch only."""

from __future__ import annotations

from functools import partial

import pytest

from dask_train.trainers.common.rank_state import RankState


def state_of(held):
    state = RankState()
    for name in ("weights", "history"):
        state.shared(name, partial(held.get, name), partial(held.__setitem__, name))
    state.shared("metrics", partial(held.get, "metrics"), partial(held.__setitem__, "metrics"), within_epoch=True)
    return state.own("seed", partial(held.get, "seed"), partial(held.__setitem__, "seed"))


THEN = {"weights": [1.0], "history": {"loss": [2.0]}, "metrics": b"counted", "seed": 7}


@pytest.mark.parametrize("within_epoch", [False, True])
def test_all_comes_back_but_for_metrics_of_an_epoch_that_is_over(within_epoch):
    then, now = dict(THEN), {"metrics": b"new"}
    state = state_of(now)
    state.restore_shared(state_of(then).take_shared(), within_epoch=within_epoch)
    state.restore_own(state_of(then).take_own(), within_epoch=within_epoch)
    assert now == {**THEN, "metrics": b"counted" if within_epoch else b"new"}


def test_parts_are_known_by_name_and_kind():
    assert state_of({}).names == {"shared": ["history", "metrics", "weights"], "own": ["seed"]}
    assert (state_of({}).has_own, RankState().has_own) == (True, False)


@pytest.mark.parametrize("kind", ["shared", "own"])
def test_two_parts_of_one_name_are_refused(kind):
    register = getattr(RankState(), kind)
    register("weights", dict, dict)
    with pytest.raises(ValueError, match="has a part 'weights' already"):
        register("weights", dict, dict)


def test_own_parts_bind_a_checkpoint_to_the_number_of_ranks_unless_they_may_begin_anew():
    state = RankState().own("seed", dict, dict, may_begin_anew=True).own("sums", dict, dict, within_epoch=True)
    assert (state.bound_to_ranks(within_epoch=True), state.bound_to_ranks(within_epoch=False)) == (["sums"], [])
    restored = []
    state.own("moments", lambda: 1, restored.append)
    state.own("part", lambda: 2, restored.append, within_epoch=True)
    state.restore_own({"seed": {}, **state.take_own()}, within_epoch=False)
    assert restored == [1]


def test_with_other_ranks_those_parts_are_restored_that_have_a_rule_for_it():
    restored = []
    state = RankState().own("seed", dict, restored.append, may_begin_anew=True)
    state.own("sums", dict, restored.append, regroup=lambda values, rank: 0 if rank else sum(values))
    assert state.bound_to_ranks(within_epoch=True) == []
    everyones = [{"seed": 7, "sums": 1}, {"seed": 8, "sums": 2}, {"seed": 9, "sums": 3}]
    for rank in range(2):
        state.restore_own(state.regroup_own(everyones, rank), within_epoch=True)
    assert restored == [6, 0]


def test_what_tells_of_the_course_of_training_does_not_go_back_with_what_is_trained():
    restored = []
    state = RankState().shared("weights", lambda: 1, restored.append)
    state.shared("callbacks", lambda: 2, restored.append, trained=False)
    state.shared("metrics", lambda: 3, restored.append, within_epoch=True)
    state.restore_trained(state.take_shared())
    assert restored == [1]


def test_the_course_of_training_is_what_is_shared_and_not_trained():
    held, now = {"weights": [1.0], "callbacks": b"held"}, {}
    states = []
    for values in (held, now):
        state = RankState().shared("weights", partial(values.get, "weights"), partial(values.__setitem__, "weights"))
        state.own("seed", dict, dict)
        restore = partial(values.__setitem__, "callbacks")
        states.append(state.shared("callbacks", partial(values.get, "callbacks"), restore, trained=False))
    course = states[0].course.take_shared()
    assert course == {"callbacks": b"held"}
    states[1].course.restore_shared(course, within_epoch=True)
    assert now == {"callbacks": b"held"}


def test_the_successor_of_a_lost_rank_gets_what_all_have_and_the_first_one_what_it_alone_has():
    def state_of_first(held):
        state = RankState().shared("weights", partial(held.get, "weights"), partial(held.__setitem__, "weights"))
        return state.shared("metrics", partial(held.get, "metrics"), partial(held.__setitem__, "metrics"), led=True)

    then, now = state_of_first(dict(THEN)), {}
    assert (then.take_alike(), then.take_led()) == ({"weights": [1.0]}, {"metrics": b"counted"})
    state_of_first(now).restore_some(then.take_alike())
    assert now == {"weights": [1.0]}


def test_what_changes_within_a_step_is_mirrored_and_in_no_checkpoint():
    held = {"random": 1, "counts": 2}
    state = RankState().own("random", lambda: held["random"], partial(held.__setitem__, "random"))
    state.passing("counts", lambda: held["counts"], partial(held.__setitem__, "counts"))
    mirrored = state.take_mirrored()
    assert (mirrored, state.take_own(), state.names["own"]) == (
        ({"random": 1}, {"counts": 2}),
        {"random": 1},
        ["random"],
    )
    held.update(random=5, counts=6)
    state.restore_mirrored(mirrored)
    assert held == {"random": 1, "counts": 2}
