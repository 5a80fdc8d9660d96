"""Tensors that have shapes and no values, which distinguish errors of shapes from errors of values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dask_train.compat.torch import without_values

# What torch says of such tensors themselves, and of no others.
_OF_TENSORS_WITHOUT_VALUES = re.compile(
    r"tensor subclass|fake(?!tensor' object has no attribute)|data pointer|\bmeta\b|data-dependent", re.IGNORECASE
)


def is_of_shapes(error: Exception, attempt: Callable[[], Any]) -> bool:
    """Return whether rows of other values, too, would have raised an error.

    Parameters
    ----------
    error
        What the rows raised.
    attempt
        Does the same again. It may leave tensors without values in what it changes.
    """
    try:
        with without_values():
            attempt()
    except Exception as again:
        text = str(again)
        is_same = type(again) is type(error) or text.startswith(str(error))
        return is_same and not _OF_TENSORS_WITHOUT_VALUES.search(text)
    return False
