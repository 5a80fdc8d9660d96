"""Attributes that an estimator learns from rows before it is fitted: they stay as they were if the fit fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def taken_back_on_failure(estimator: Any, names: Sequence[str]) -> Iterator[None]:
    """Give attributes of an estimator their values of before, if the body raises."""
    before = attributes_of(estimator, names)
    try:
        yield
    except BaseException:
        set_attributes(estimator, names, before)
        raise


def attributes_of(estimator: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of these names that an estimator has."""
    return {name: vars(estimator)[name] for name in names if name in vars(estimator)}


def set_attributes(estimator: Any, names: Sequence[str], values: Mapping[str, Any]) -> None:
    """Set attributes of these names, and remove those that have no value."""
    for name in names:
        vars(estimator).pop(name, None)
    vars(estimator).update(values)
