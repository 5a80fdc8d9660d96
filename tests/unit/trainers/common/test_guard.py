"""Weights that differ between workers are found; those that are rounded differently only are not."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from dask_train.errors import DivergedError
from dask_train.fitting.roles.weights import assign, value_of
from dask_train.trainers.common.guard import Guard, checksum


@pytest.fixture
def looked(on_each_rank):
    """What each of three workers finds that has these values of its variables, and then has."""

    def look(values, steps=1):
        variables = [
            [keras.Variable(each, trainable=False, dtype=each.dtype.name, name=f"v{n}") for n, each in enumerate(its)]
            for its in values
        ]

        def take_part(rank, replicas):
            try:
                Guard(variables[rank], replicas, value_of, assign).look(steps)
            except DivergedError as error:
                return str(error)
            return None

        found = on_each_rank(take_part, 3)
        return found, [[np.array(value_of(variable)) for variable in its] for its in variables]

    return look


def made():
    random = np.random.default_rng(0)
    return [random.normal(size=(3, 5)).astype("float32"), np.arange(3), np.array(True), np.zeros((0, 4))]


def test_the_same_weights(looked):
    found, _ = looked([made() for _ in range(3)])
    assert found == [None] * 3


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, lambda array: array * np.float32(1.0001)),
        (0, lambda array: array * np.float32(np.nan)),
        (1, lambda array: array + 1),
        (2, np.logical_not),
    ],
)
def test_others_are_told_by_name_on_all_workers(number, change, looked):
    values = [made() for _ in range(3)]
    values[2][number] = np.asarray(change(values[2][number]))
    found, _ = looked(values, steps=7)
    assert len(set(found)) == 1
    assert found[0].startswith("After step 7 worker 2 has other weights than worker 0: ")
    assert f"v{number}' differs by up to" in found[0]


def test_rounding_is_tolerated_and_made_the_same_again(looked):
    values = [made() for _ in range(3)]
    values[1][0] = np.nextafter(values[1][0], np.float32(10))
    found, left = looked(values)
    assert found == [None] * 3
    for its in left:
        np.testing.assert_array_equal(its[0], values[0][0])


def test_looks_take_no_more_memory_than_the_first_two(on_each_rank):
    def take_part(rank, replicas):
        variables = [keras.Variable(each, trainable=False, dtype=each.dtype.name) for each in made() * 2]
        guard = Guard(variables, replicas, value_of, assign)
        tops = []
        for step, number_off in enumerate([2, 1, 2, 1, 2]):
            for variable in variables[: 4 * number_off : 4]:
                value = np.array(value_of(variable))
                assign([variable], [np.nextafter(value, np.float32(10)) if rank else value])
            guard.look(step)
            tops.append(replicas.top)
        return tops

    for tops in on_each_rank(take_part, 2):
        assert len(set(tops)) == 1, "channels are kept for all of one shape and dtype"


@pytest.mark.parametrize(("number", "is_told"), [(5, False), (50, True)])
def test_few_values_of_many_may_go_another_way(number, is_told, looked):
    values = [[np.ones((100, 100), "float32")] for _ in range(3)]
    values[2][0].ravel()[:number] = 1.001
    found, left = looked(values)
    assert [error is not None for error in found] == [is_told] * 3
    assert is_told or (left[2][0] == 1).all()


def test_a_checksum_sees_each_byte():
    data = np.arange(29, dtype=np.uint8)
    for place in range(29):
        changed = data.copy()
        changed[place] ^= 1
        assert checksum(changed) != checksum(data)
