"""Values of pandas as JSON and back, exactly: names of columns, and the categories of a column."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from typing import Any

import numpy as np

# How values that JSON has no type for are written: ``{tag: text}``.
_READERS: dict[str, Any] = {
    "bytes": base64.b64decode,
    "date": datetime.date.fromisoformat,
    "decimal": decimal.Decimal,
    "float": float,
    "tuple": lambda items: tuple(map(value_from_json, items)),
}


def value_to_json(value: Any) -> Any:
    """Return one value as JSON holds it.

    Raises
    ------
    TypeError
        JSON can't represent a value of its type.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return {"date": value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, tuple):
        return {"tuple": list(map(value_to_json, value))}
    raise TypeError(
        f"{value!r} is a {type(value).__name__}, which a schema can't hold in JSON. Use text, numbers, dates or "
        "intervals in its place, for example .astype(str)."
    )


def value_from_json(content: Any) -> Any:
    """Return the value that :func:`value_to_json` has written."""
    if not isinstance(content, dict):
        return content
    ((tag, text),) = content.items()
    return _READERS[tag](text)


def index_to_json(index: Any) -> dict[str, Any]:
    """Return an index of pandas as JSON holds it: its dtype and its values.

    Raises
    ------
    TypeError
        JSON can't represent a value of its type.
    """
    import pandas as pd

    if isinstance(index, pd.IntervalIndex):
        sides = {"left": index_to_json(index.left), "right": index_to_json(index.right)}
        return {"dtype": "interval", "closed": index.closed, **sides}
    if index.dtype.kind in "mM" and hasattr(index, "asi8"):  # the numbers behind dates and spans of time, in their unit
        zone = getattr(index, "tz", None)
        plain = index if zone is None else index.tz_convert("UTC").tz_localize(None)
        as_json = {"dtype": str(plain.dtype), "values": plain.asi8.tolist()}
        return as_json if zone is None else {**as_json, "zone": str(zone)}
    return {"dtype": str(index.dtype), "values": [value_to_json(value) for value in index.tolist()]}


def index_from_json(content: dict[str, Any]) -> Any:
    """Return the index that :func:`index_to_json` has written."""
    import pandas as pd

    dtype = content["dtype"]
    if dtype == "interval":
        left, right = index_from_json(content["left"]), index_from_json(content["right"])
        return pd.IntervalIndex.from_arrays(left, right, closed=content["closed"])
    if dtype.startswith(("datetime64", "timedelta64")):
        index = pd.Index(np.array(content["values"], np.int64).view(dtype))
        return index if "zone" not in content else index.tz_localize("UTC").tz_convert(content["zone"])
    return pd.Index([value_from_json(value) for value in content["values"]], dtype=dtype)
