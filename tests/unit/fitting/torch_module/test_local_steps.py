"""Workers that step alone and share weights, as threads; beside the same by hand in one loop, written with NumPy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from dask_train.data.columns import Columns
from dask_train.fitting.torch_module.local_steps import LocalSteps, OuterSteps
from dask_train.fitting.torch_module.task import OuterOptimizer

ROWS, EVERY, STEPS = 7, 3, 8
COLUMNS = Columns.of_batch(2)
_random = np.random.default_rng(0)
X = torch.from_numpy(_random.normal(size=(STEPS, ROWS, 4)))
Y = torch.from_numpy(_random.integers(0, 3, (STEPS, ROWS)))


NET = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()
NET[0].bias.requires_grad_(False)


def network() -> torch.nn.Module:
    return copy.deepcopy(NET)  # threads draw from the same random numbers


def values(net: torch.nn.Module) -> list[np.ndarray]:
    return [one.detach().numpy().copy() for one in net.parameters()]


def by_hand(size: int, rate: float, momentum: float) -> list[list[np.ndarray]]:
    """The weights that are shared after each turn: Algorithm 1 of DiLoCo."""
    nets = [network() for _ in range(size)]
    inner = [torch.optim.Adam(net.parameters(), lr=0.05) for net in nets]
    shared, found = values(nets[0]), []
    velocity = [np.zeros_like(one) for one in shared]
    for step in range(STEPS):
        for rank, (net, optimizer) in enumerate(zip(nets, inner, strict=True)):
            optimizer.zero_grad()
            if len(X[step, rank::size]):
                loss = torch.nn.functional.cross_entropy(net(X[step, rank::size]), Y[step, rank::size])
                loss.backward()
                optimizer.step()
        if (step + 1) % EVERY == 0 or step + 1 == STEPS:
            for place, weights in enumerate(shared):
                gradient = np.mean([weights - values(net)[place] for net in nets], axis=0)
                velocity[place] = momentum * velocity[place] + gradient
                shared[place] = weights - rate * (gradient + momentum * velocity[place])
            with torch.no_grad():
                for net in nets:
                    for one, weights in zip(net.parameters(), shared, strict=True):
                        one.copy_(torch.from_numpy(weights))
            found.append([one.copy() for one in shared])
    return found


def taken(rank: int, replicas: Any, outer: OuterOptimizer, *, tells: bool = False, steps: int = STEPS) -> Any:
    """The weights after each turn, what was told, and the outer steps; of one worker."""
    net = network()
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=0.05)
    local = LocalSteps(net, torch.nn.CrossEntropyLoss(), replicas, tells_outputs=tells)
    moving, found, told = OuterSteps(net, replicas, outer), [], []
    for step in range(steps):
        x, y = X[step, rank :: replicas.size], Y[step, rank :: replicas.size]
        batch = local.steps.packed(COLUMNS, (x, y))
        local.train(batch, lambda: local.steps.packed(COLUMNS, (X[0, :1], Y[0, :1])), optimizer.step)
        if moving.is_due(step + 1) or step + 1 == steps:
            moving.move()
            found.append(values(net))
            told.extend(local.take_results())
    return found, told, moving


@pytest.mark.parametrize(
    ("size", "rate", "momentum"), [(2, 1.0, 0.0), (3, 0.7, 0.9), (9, 0.7, 0.9)], ids=["local SGD", "DiLoCo", "no rows"]
)
def test_weights_are_those_of_the_algorithm_by_hand(on_each_rank, size, rate, momentum):
    outer = OuterOptimizer(every=EVERY, learning_rate=rate, momentum=momentum)
    wanted = by_hand(size, rate, momentum)
    assert len(wanted) == 3
    for found, _, _ in on_each_rank(lambda rank, replicas: taken(rank, replicas, outer), size):
        for its, expected in zip(found, wanted, strict=True):
            for one, other in zip(its, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_local_sgd_ends_with_the_mean_of_the_workers_weights(on_each_rank):
    outer = OuterOptimizer(every=EVERY, learning_rate=1.0, momentum=0.0)

    def alone(rank, replicas):
        net = network()
        local = LocalSteps(net, torch.nn.CrossEntropyLoss(), replicas, tells_outputs=False)
        moving, optimizer = OuterSteps(net, replicas, outer), torch.optim.SGD(net.parameters(), lr=0.1)
        batch = local.steps.packed(COLUMNS, (X[0, rank::2], Y[0, rank::2]))
        local.train(batch, lambda: batch, optimizer.step)
        before = values(net)
        moving.move()
        return before, values(net)

    (first, mean), (second, other) = on_each_rank(alone, 2)
    for one, two, moved, same in zip(first, second, mean, other, strict=True):
        np.testing.assert_allclose(moved, (one + two) / 2, rtol=1e-12, atol=1e-15)
        assert moved.tobytes() == same.tobytes()


def test_workers_tell_losses_weighed_by_rows_and_the_outputs_of_all(on_each_rank):
    """Of nine workers two have no rows; all losses of the first step are of the same weights."""
    outer = OuterOptimizer(every=EVERY, learning_rate=0.7, momentum=0.9)
    with torch.no_grad():
        outputs = network()(X[0])
        loss = float(torch.nn.functional.cross_entropy(outputs, Y[0]))
    for size in (2, 9):
        for tells in (False, True):

            def told(rank, replicas, tells=tells):
                return taken(rank, replicas, outer, tells=tells, steps=1)[1]

            for (done,) in on_each_rank(told, size):
                assert (done.loss, done.rows) == (pytest.approx(loss), ROWS)
                if tells:
                    torch.testing.assert_close(done.outputs.sum(0), outputs.sum(0))
                    assert sorted(done.y.tolist()) == sorted(Y[0].tolist())


def test_momentum_is_in_the_state(on_each_rank):
    outer = OuterOptimizer(every=EVERY, learning_rate=0.7, momentum=0.9)

    def resumed(rank, replicas):
        _, _, moving = taken(rank, replicas, outer)
        net = network()
        other = OuterSteps(net, replicas, outer)
        weights = values(net)
        assert other.restore(copy.deepcopy(moving.state())) == 2
        other.move()
        return weights, values(net)

    ((weights, moved), _) = on_each_rank(resumed, 2)
    assert any(not np.array_equal(one, other) for one, other in zip(weights, moved, strict=True))
