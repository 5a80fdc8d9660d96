"""Columns whose dtype does not tell their values may be any such later, but no numbers and no categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.plain import OtherColumn

COLUMN = OtherColumn.of("data", "c", np.dtype(object))


def test_a_column_of_arrays_stays_as_it_is() -> None:
    given = pd.Series([[1], [2]])
    assert COLUMN.conformed("x", given, coded=True) is given


@pytest.mark.parametrize("values", [[1], pd.Categorical(["a"])], ids=str)
def test_another_kind_is_refused(values: Any) -> None:
    with pytest.raises(TypeError, match=r"'c' of x is .*fitted with object in column 'c'"):
        COLUMN.conformed("x", pd.Series(values, name="c"), coded=True)
