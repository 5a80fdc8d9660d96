"""What a rule to stop by is, what it takes for a number, and who it says a score is from."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dask_train.run.stop_rule import RunProgress, StopRule, number, origin


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0.5, 0.5),
        (3, 3.0),
        (True, 1.0),
        (np.float32(0.25), 0.25),
        (np.array(2.0), 2.0),
        (np.array([2.0]), 2.0),
        (Fraction(1, 2), 0.5),
    ],
)
def test_numbers(value, found):
    assert number(value) == found
    assert type(number(value)) is float


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1, 2], np.zeros(2), {}, 1j, math.nan, 10**400])
def test_what_is_no_number_is_none(value):
    assert math.isnan(number(value))


@pytest.mark.parametrize(
    ("score", "told"),
    [
        ({"role": "scorer", "rank": 0}, " (scorer 0)"),
        ({"role": "scorer"}, " (scorer)"),
        ({"rank": 3}, ""),
        ({}, ""),
    ],
)
def test_who_reported_it(score, told):
    assert origin(score) == told


def test_the_base_is_no_rule():
    with pytest.raises(NotImplementedError, match=r"StopRule does not say .* give it a method met\(\)"):
        StopRule().met([], RunProgress(steps=0, seconds=0.0))
    assert StopRule().names == frozenset()
