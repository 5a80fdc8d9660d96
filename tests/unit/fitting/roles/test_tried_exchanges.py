"""Whether what parts of a batch give other workers adds up to what the whole batch gives them."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.fitting.roles.tried_exchanges import TriedExchanges

ROOM = 2e-4
ROWS = np.random.default_rng(0).normal(size=(8, 3)) + 1
PARTS = slice(0, 2), slice(2, 8)


def tried(step, *, parts=PARTS, num_values=1 << 16):
    """What a step exchanges that is called with its rows, their share and what plays the others."""
    found = TriedExchanges(num_values)
    found.begin_whole()
    step(ROWS, 1.0, found)
    for part in parts:
        found.begin_part(part)
        step(ROWS[part], (part.stop - part.start) / len(ROWS), found)
    found.finish()
    return found


@pytest.mark.parametrize(
    ("gradient", "is_mean"),
    [
        (lambda x, _: x.mean(0), True),
        (lambda x, share: x.sum(0) / share, True),
        (lambda x, _: x.sum(0), False),
        (lambda x, _: np.sqrt((x**2).mean(0)), False),
        (lambda x, _: x.max(0), False),
        (lambda x, _: x.std(0), False),
        (lambda x, _: x.mean(0) + 2e-2 * x.std(), False),
        (lambda x, _: x.mean(0).astype(np.float16), True),
    ],
    ids=["mean", "sum that counts as one", "sum", "root", "largest", "spread", "a little spread", "half"],
)
def test_gradients_are_means(gradient, is_mean):
    found = tried(lambda x, share, others: others.gradients([gradient(x, share), np.zeros(2)], share))
    room = 5e-2 if gradient(ROWS, 1).dtype == np.float16 else ROOM
    assert found.is_used
    assert found.is_finite
    assert found.adds_up(room) is is_mean


def test_what_is_not_finite_is_told():
    def step(x, share, others):
        others.gradients([x.mean(0) * np.nan], share)

    assert not tried(step).is_finite
    assert not tried(step).adds_up(ROOM)


def test_nothing_is_exchanged():
    assert not tried(lambda *_: None).is_used


def test_what_is_left_of_a_gradient_that_is_none_counts_for_nothing():
    assert tried(lambda x, share, others: others.gradients([x.mean(0), 1e-8 * x[0]], share)).adds_up(ROOM)


def test_gradients_of_a_table_are_added_up_by_row():
    looked_up = np.array([3, 1, 3, 3, 7, 1, 0, 3])

    def step(x, share, others, factor=1.0):
        indices = looked_up[: len(x)] if len(x) < 6 else looked_up[-len(x) :]
        others.slices(indices, factor * x / len(x), share)

    assert tried(step).adds_up(ROOM)
    assert not tried(lambda *args: step(*args, factor=len(args[0]))).adds_up(ROOM)


def test_parts_are_given_what_the_whole_batch_has():
    def step(x, share, others):
        (total,) = others.sum([x.sum(0)], 1.0)
        np.testing.assert_array_equal(total, ROWS.sum(0))
        assert total.dtype == np.float64
        (everyones, squares), own = others.gather([x, x**2])
        np.testing.assert_array_equal(everyones[own], x)
        np.testing.assert_array_equal(squares, ROWS**2)
        others.gradients([(x * total / len(x)).sum(0)], share)

    assert tried(step).adds_up(ROOM)


def test_what_is_given_to_others_has_to_add_up_as_well():
    def step(x, share, others):
        others.sum([np.array(x.max())], share)
        others.gradients([x.mean(0)], share)

    assert not tried(step).adds_up(ROOM)


@pytest.mark.parametrize("more", [True, False])
def test_another_number_of_exchanges_is_an_error(more):
    def step(x, share, others):
        for _ in range(2 + ((len(x) == 6) == more)):
            others.gradients([x.mean(0)], share)

    with pytest.raises(ValueError, match="exchange"):
        tried(step)


def test_another_kind_of_exchange_is_an_error():
    def step(x, share, others):
        others.gather([x]) if len(x) == len(ROWS) else others.sum([x], share)

    with pytest.raises(ValueError, match="otherwise than the whole"):
        tried(step)


def test_some_values_of_large_gradients_are_compared():
    def step(x, share, others):
        others.gradients([np.repeat(x.mean(0), 100).reshape(100, 3)], share)

    found = tried(step, num_values=50)
    assert [one.arrays[0].shape for one in found._whole] == [(50,)]
    assert found.adds_up(ROOM)


def test_steps_are_like_others():
    def mean(x, share, others):
        others.gradients([x.mean(0)], share)

    def other(x, share, others):
        others.gradients([1.01 * x.mean(0)], share)

    assert tried(mean).is_like(tried(mean, parts=()), ROOM)
    assert not tried(mean).is_like(tried(other, parts=()), ROOM)
    assert not tried(mean).is_like(tried(lambda *_: None, parts=()), ROOM)
