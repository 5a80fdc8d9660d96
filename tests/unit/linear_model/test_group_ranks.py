"""Ranks whose lost ones are replaced: sums are those of a session, and what they decide is checked."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.collectives.checked import CheckedCollectives
from dask_train.collectives.reductions import Reduction
from dask_train.linear_model.group_ranks import GroupRanks
from dask_train.linear_model.steps import SolverSteps

SIZE = 3


class RestartError(Exception):
    """All are to start again."""


def session_of(rank=0):
    def start_all_again(why):
        raise RestartError(why)

    done = []
    link = SimpleNamespace(note=done.append, moved=done.append, start_all_again=start_all_again, done=done)
    return SimpleNamespace(_link=link, world_rank=rank)


def arrays_of(rank):
    random = np.random.default_rng(rank)
    return [
        random.normal(size=(3, 4)),
        np.float64(random.normal()),
        np.arange(3) * 10**rank,
        random.normal(size=5).astype(np.float32),
    ]


@pytest.mark.parametrize("op", ["sum", "max"])
def test_sums_have_the_bits_of_a_sessions(on_each_rank, op):
    def both(rank, replicas):
        ranks = GroupRanks(session_of(rank), [], replicas)
        found = [ranks.all_reduce(arrays_of(rank), op) for _ in range(2)]
        names = [str(each) for each in range(SIZE)]
        given = [np.asarray(each) for each in arrays_of(rank)]
        return found, CheckedCollectives(replicas, names).all_reduce(given, Reduction(op))

    for found, wanted in on_each_rank(both, SIZE):
        for again in found:
            for one, other in zip(again, wanted, strict=True):
                assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def test_what_one_has_goes_to_all_and_rows_are_put_together(on_each_rank):
    def take_part(rank, replicas):
        session = session_of(rank)
        ranks = GroupRanks(session, [], replicas)
        sent = ranks.broadcast(np.array([rank, np.nan, -0.0]), root=1)
        rows = ranks.all_gather(np.full((rank, 2), rank))
        return sent.tobytes(), rows.tolist(), ranks.world_rank, session._link.done[-1]

    for number, (sent, rows, rank, done) in enumerate(on_each_rank(take_part, SIZE)):
        assert sent == np.array([1, np.nan, -0.0]).tobytes()
        assert rows == [[1, 1], [2, 2], [2, 2]]
        assert (rank, done) == (number, "past all_gather()")


def test_results_are_the_callers_own(on_each_rank):
    def take_part(rank, replicas):
        ranks = GroupRanks(session_of(rank), [], replicas)
        first = ranks.all_reduce(np.full(3, 1.0))
        ranks.all_reduce(np.full(3, 2.0))
        return first.tolist()

    assert on_each_rank(take_part, 2) == [[2.0, 2.0, 2.0]] * 2


def test_all_start_again_where_a_successor_of_the_first_decides_otherwise():
    group = SimpleNamespace(rank=0, size=2, channel=lambda *_: None)
    group.broadcast = lambda _, arrays, root: [np.nextafter(arrays[root], 2)]  # what the lost one has sent
    ranks = GroupRanks(session_of(), [], group)
    with pytest.raises(RestartError, match="what the first worker decided came out otherwise"):
        ranks.broadcast(np.ones(3))


def test_calls_go_through_the_steps_which_may_remember_them():
    class Knowing(SolverSteps):
        def remembered(self, call, make):
            return [np.asarray(5.0) if call.startswith("all_reduce(op='sum') of [('<f8', 0)]") else make()]

    ranks = GroupRanks(session_of(), [], None)
    ranks.steps = Knowing()
    assert ranks.all_reduce(np.float64(1.0)) == 5.0
