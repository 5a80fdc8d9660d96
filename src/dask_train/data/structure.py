"""Structures of arrays: tuples, lists and dicts in which each array goes by the number of its column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# A number, or a tuple, list or dict of structures of numbers; None if there is nothing.
Places = Any


def numbered(structure: Any, flat: list[Any]) -> Places:
    """Append what lies in a structure to ``flat``, and return the structure with the places there; None stays.

    Named tuples become plain ones: processes that places go to may not know their class.
    """
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        return {name: numbered(below, flat) for name, below in structure.items()}
    if isinstance(structure, tuple | list):
        make = tuple if isinstance(structure, tuple) else list
        return make(numbered(below, flat) for below in structure)
    flat.append(structure)
    return len(flat) - 1


def filled(places: Any, value_at: Callable[[Any], Any]) -> Any:
    """Return a structure with ``value_at(leaf)`` in place of each leaf, such as a number; None stays."""
    if places is None:
        return None
    if isinstance(places, Mapping):
        return {name: filled(below, value_at) for name, below in places.items()}
    if isinstance(places, tuple | list):
        make = getattr(type(places), "_make", type(places))  # of named tuples
        return make(filled(below, value_at) for below in places)
    return value_at(places)


def leaves(structure: Any) -> list[Any]:
    """Return what lies in a structure, in the order in which columns are numbered; None is left out."""
    flat: list[Any] = []
    numbered(structure, flat)
    return flat
