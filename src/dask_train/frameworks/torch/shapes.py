"""Tensors that have shapes and no values, by which errors of shapes are told from errors of values."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What torch says of such tensors themselves, and of no others.
_OF_TENSORS_WITHOUT_VALUES = re.compile(
    r"tensor subclass|fake(?!tensor' object has no attribute)|data pointer|\bmeta\b|data-dependent", re.IGNORECASE
)


@contextmanager
def without_values() -> Iterator[None]:
    """Compute tensors by their shapes and dtypes alone, while it lasts; those that come out have no values.

    Tensors from outside may go in, and stay as they are. What looks at values raises an error.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # it takes most of a second to import

    log = logging.getLogger("torch._subclasses.fake_tensor")  # which prints errors that are raised, too
    was_disabled, log.disabled = log.disabled, True
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        log.disabled = was_disabled


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
