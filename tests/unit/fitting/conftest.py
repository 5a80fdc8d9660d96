"""What tests of ``fit`` share: an older Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def penalties_added_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keras as it was up to 3.13, where an ``activity_regularizer`` is not divided by the number of rows."""
    import keras

    from dask_train.compat.keras.penalties import averages_activity

    if not averages_activity():
        pytest.skip("this Keras is such a one")
    penalty = keras.regularizers.L2.__call__

    def times_rows(regularizer: Any, values: Any) -> Any:
        return penalty(regularizer, values) * keras.ops.cast(keras.ops.shape(values)[0], values.dtype)

    monkeypatch.setattr(keras.regularizers.L2, "__call__", times_rows)
    averages_activity.cache_clear()
    yield
    averages_activity.cache_clear()
