"""Grey pictures of arrays."""

from __future__ import annotations

import numpy as np

from dask_train.report.pictures import range_text


def test_range_is_told() -> None:
    assert range_text(np.array([[0.0, 0.99609375]])) == "black 0, white 0.996"
