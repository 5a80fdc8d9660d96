"""Tensors that have shapes and no values, which distinguish errors of shapes and dtypes from errors of values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dask_train.compat.torch import without_values

# What torch says of such tensors themselves, and of no others.
_OF_TENSORS_WITHOUT_VALUES = re.compile(
    r"tensor subclass|fake(?!tensor' object has no attribute)|data pointer|\bmeta\b|data-dependent", re.IGNORECASE
)

# What operators say of dtypes that they don't take. Without values some of them take any: those of matrices, for one.
_OF_DTYPES = re.compile(
    r"the same dtype|expected (scalar type|.* to have one of the following scalar types)|not implemented for '\w+'"
    r"|Input type \(.*\) and (weight|bias) type",
    re.IGNORECASE,
)


def is_of_dtypes(error: Exception) -> bool:
    """Return whether an operator of torch refuses the dtype of what it was given."""
    return _OF_DTYPES.search(str(error)) is not None


def is_of_shapes(error: Exception, attempt: Callable[[], Any]) -> bool:
    """Return whether rows of other values, too, would have raised an error, which is one of shapes or dtypes.

    Parameters
    ----------
    error
        What the rows raised.
    attempt
        Does the same again. It may leave tensors without values in what it changes.
    """
    if is_of_dtypes(error):
        return True
    try:
        with without_values():
            attempt()
    except Exception as again:
        text = str(again)
        is_same = type(again) is type(error) or text.startswith(str(error))
        return is_same and not _OF_TENSORS_WITHOUT_VALUES.search(text)
    return False
