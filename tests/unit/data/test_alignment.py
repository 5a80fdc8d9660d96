"""Where arrays begin in memory that is shared with frameworks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.alignment import ALIGNMENT_BYTES, is_aligned, rounded


@pytest.mark.parametrize(("size", "next_one"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128)])
def test_the_next_place(size, next_one):
    assert rounded(size) == next_one


@given(st.integers(0, 2**70), st.integers(1, 2**20))
def test_it_is_the_next_multiple(size, step):
    found = rounded(size, step)
    assert found % step == 0
    assert 0 <= found - size < step


def test_which_arrays_can_be_shared():
    assert [place for place in range(130) if is_aligned(place)] == [0, ALIGNMENT_BYTES, 2 * ALIGNMENT_BYTES]
