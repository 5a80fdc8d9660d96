"""What the doctor has found out, as it is compared."""

from __future__ import annotations

import pytest

from dask_train.doctor.examined import Clock


def test_a_clock_is_compared_as_by_ntp():
    # The way there takes 0.1 s, the answer 3 s, the way back 0.3 s; the other clock is 7 s ahead.
    clock = Clock.compared(100.0, 107.1, 110.1, 103.4)
    assert clock.ahead_s == pytest.approx(6.9)
    assert clock.error_s == pytest.approx(0.2)
    assert clock.differs
    assert not Clock(0.6, 0.2).differs  # not for certain
    assert not Clock(-0.4, 0.0).differs
    assert Clock(-0.8, 0.2).differs
