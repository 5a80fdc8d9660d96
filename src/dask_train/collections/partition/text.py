"""Text: arrays of objects that are all strings or bytes."""

from __future__ import annotations

from typing import Any

import numpy as np


def text_rows(at: str, values: Any) -> np.ndarray:
    # An array of ``str`` or ``bytes`` objects; a TypeError where one is missing or something else.
    array = np.asarray(values, object)
    for number, value in enumerate(array.ravel() if array.ndim else ()):
        if not isinstance(value, str | bytes):
            row = number * len(array) // array.size
            what = "missing" if str(value) in {"None", "nan", "<NA>"} else f"{value!r}, no text"
            change = "Drop such rows, or fill them: .fillna(''), .astype(str); or, of numbers, .astype(float)."
            raise TypeError(f"Row {row} {at} is {what}. {change}")
    return array


def column_texts(where: str, name: Any, series: Any) -> np.ndarray:
    # The texts of a column; a TypeError where they are arrays that Dask has printed, which loses most of them.
    first = series.iloc[0]
    if str(series.dtype) != "object" and str(first)[:1] == "[" and not set(first) - set("[]0123456789.eE+-, \nnaif"):
        raise TypeError(
            f"Column {name!r} of {where} holds the text {first[:20]!r}. Dask makes text of arrays: call "
            "dask.config.set({'dataframe.convert-string': False}) before the frame is made, also to have such text."
        )
    return text_rows(f"of column {name!r} of {where}", series.to_numpy(object))
