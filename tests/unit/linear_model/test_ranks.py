"""A solver that runs in the first rank, while the others sum with it."""

from __future__ import annotations

import numpy as np

from dask_train.linear_model.ranks import Alone, led


def solve_by_halves(evaluate):
    """Asks for values and gradients in turns, and ends after three steps."""
    coef = np.zeros(2)
    for _ in range(3):
        evaluate(coef, 0)
        _, gradient = evaluate(coef, 1)
        coef = coef - 0.5 * gradient
    return coef, 3, True


def test_all_ranks_end_with_what_the_first_has_found(ranks_of):
    asked = {}

    def task(rank):
        mine = np.array([rank.world_rank, 1.0])  # of each: half the squared distance to that
        asked[rank.world_rank] = orders = []

        def evaluate(coef, order):
            orders.append((order, coef.tolist()))
            return rank.all_reduce([0.5 * (coef - mine) @ (coef - mine), (coef - mine) / 3][: order + 1])

        return led(rank, 2, evaluate, solve_by_halves)

    found = ranks_of([(), (), ()], task)
    np.testing.assert_allclose(found, [[0.875, 0.875, 3.0, 1.0]] * 3)
    assert asked[0] == asked[1] == asked[2]
    assert [order for order, _ in asked[1]] == [0, 1] * 3


def test_one_that_is_alone_leads(monkeypatch):
    columns = (np.arange(3), np.ones(3))
    alone = Alone(*columns)
    assert list(alone.partitions()) == [columns]
    found = led(alone, 2, lambda coef, order: [None, coef - 1.0][: order + 1], solve_by_halves)
    np.testing.assert_allclose(found, [0.875, 0.875, 3.0, 1.0])
