"""Text of any dtype may stand for text."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dask_train.collections.schema.plain import TextColumn

COLUMN = TextColumn.of("data", "c", pd.StringDtype())


@pytest.mark.parametrize("dtype", [object, "string", "string[pyarrow]", "str"])
def test_a_column_of_text_stays_as_it_is(dtype: Any) -> None:
    given = pd.Series(["a"], dtype=dtype)
    assert COLUMN.conformed("x", given, coded=True) is given


@pytest.mark.parametrize("values", [[1], pd.Categorical(["a"])], ids=str)
def test_another_kind_is_refused(values: Any) -> None:
    with pytest.raises(TypeError, match=r"'c' of x is .*fitted with text in column 'c'.*astype\(str\)"):
        COLUMN.conformed("x", pd.Series(values, name="c"), coded=True)
