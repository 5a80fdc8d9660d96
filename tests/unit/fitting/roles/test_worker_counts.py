"""How many workers share each batch: every batch is shared by one number of workers, whatever step each is at."""

from __future__ import annotations

import pytest

from dask_train.fitting.roles.worker_counts import WorkerCounts

ONE = WorkerCounts(((0, 1),))
# Of one worker, then of three, of two, and of three again.
CHANGED = ONE.then(10, 3).then(20, 2).then(30, 3)


def test_another_number_shares_the_batches_from_a_step_on():
    assert [CHANGED.at(step) for step in (0, 9, 10, 19, 20, 29, 30, 99)] == [1, 1, 3, 3, 2, 2, 3, 3]
    assert (CHANGED.last, CHANGED.most) == (3, 3)
    assert [ONE.then(10, 3).shrinks, ONE.then(10, 3).then(20, 2).shrinks, ONE.shrinks] == [False, True, False]


def test_a_change_takes_the_place_of_later_ones_when_training_is_resumed():
    assert ONE.then(10, 3).then(10, 2).changes == ((0, 1), (10, 2))
    assert ONE.then(10, 3).then(5, 1) == ONE
    assert ONE.then(0, 4).changes == ((0, 4),)
    assert WorkerCounts.of([[0, 1], [10, 3]]) == ONE.then(10, 3)


@pytest.mark.parametrize(
    ("rank", "step", "first"),
    [(0, 7, 7), (1, 0, 10), (1, 25, 25), (2, 0, 10), (2, 15, 15), (2, 20, 30), (2, 31, 31), (3, 0, None)],
)
def test_a_worker_continues_with_the_next_step_that_it_has_a_share_of(rank, step, first):
    assert CHANGED.next_of(rank, step) == first


def test_one_that_has_left_has_no_next_step():
    left = ONE.then(0, 2).then(10, 1)
    assert [left.next_of(1, step) for step in (9, 10)] == [9, None]


def test_the_shares_of_all_workers_are_each_batch_once():
    steps = 35
    shares = {}
    for rank in range(CHANGED.most):
        for first, stop, size in CHANGED.taken(rank, steps):
            for step in range(first, stop):
                shares.setdefault(step, []).append((rank, size))
    assert shares == {step: [(rank, CHANGED.at(step)) for rank in range(CHANGED.at(step))] for step in range(steps)}
    assert CHANGED.taken(2, 10) == []
    assert CHANGED.taken(2, 12) == [(10, 12, 3)]
