"""What ranks agree on: the first one's values and flags, and what each has for itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dask_train.trainers.common.agreement import GroupAgreement, SessionAgreement


class Rank:
    """A session of one of several ranks, over a group in threads."""

    def __init__(self, replicas):
        self._replicas, self.world_rank, self.world_size = replicas, replicas.rank, replicas.size
        self.num_sums = 0

    def all_reduce(self, array):
        self.num_sums += 1
        channel = self._replicas.channel([array.shape], array.dtype)
        (found,) = self._replicas.sum(channel, [array])
        return found.copy()

    def all_gather(self, rows):
        (found,) = self._replicas.gather(("rows", rows.dtype.str), [rows])
        return np.array(found)


KINDS = [GroupAgreement, lambda replicas: SessionAgreement(Rank(replicas))]


@pytest.mark.parametrize("kind", KINDS, ids=["group", "session"])
def test_what_the_first_worker_says(on_each_rank, kind):
    def agreed(rank, replicas):
        found = kind(replicas)
        values = [found.of_first(value) for value in ({"lr": [rank, None]}, None, "x" * (1 << 20) * (1 - rank))]
        return *values, found.flags(rank == 0, rank == 1), found.flags(rank == 1, rank == 0)

    wanted = ({"lr": [0, None]}, None, "x" * (1 << 20), (True, False), (False, True))
    assert on_each_rank(agreed, 3) == [wanted] * 3


@pytest.mark.parametrize("kind", KINDS, ids=["group", "session"])
def test_what_each_has_for_itself_is_told_by_rank(on_each_rank, kind):
    everyones = on_each_rank(lambda rank, replicas: kind(replicas).of_all({"rank": "x" * rank}), 3)
    assert everyones == [[{"rank": ""}, {"rank": "x"}, {"rank": "xx"}]] * 3


@pytest.mark.parametrize("kind", KINDS, ids=["group", "session"])
def test_one_alone_agrees_without_a_copy(on_each_rank, kind):
    def alone(_, replicas):
        found = kind(replicas)
        return found.of_first(value := [1]) is value, found.of_all(value)[0] is value, found.flags(True, False)

    assert on_each_rank(alone, 1) == [(True, True, (True, False))]


def test_flags_of_a_session_take_one_sum(on_each_rank):
    def asked(_, replicas):
        session = Rank(replicas)
        SessionAgreement(session).flags(True, False)
        return session.num_sums

    assert on_each_rank(asked, 2) == [1, 1]


def test_whether_all_keep_their_state_is_what_the_first_worker_says(on_each_rank):
    def agreed(rank, replicas):
        found, known = SessionAgreement(Rank(replicas)), []
        for keeps in (rank == 0, rank == 1):
            found.keeps = keeps
            assert found.flags(False, False) == (False, False)
            known.append(found.keeps)
        return known

    assert on_each_rank(agreed, 3) == [[True, False]] * 3


def test_the_value_of_any_rank_is_given_to_all(on_each_rank):
    found = on_each_rank(lambda rank, replicas: SessionAgreement(Rank(replicas)).of_rank(2, {"rank": rank}), 3)
    assert found == [{"rank": 2}] * 3


def test_time_is_told_where_it_is_measured(on_each_rank):
    def told(_, replicas):
        return GroupAgreement(replicas).all_reduce_s >= 0, SessionAgreement(Rank(replicas)).waiting_s

    ((measured, waiting_s),) = on_each_rank(told, 1)
    assert measured
    assert math.isnan(waiting_s)
