"""Inputs, targets and weights as a flat tuple of columns, which is how data travels, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A structure of places in the flat tuple: a number, or a tuple, list or dict of structures; None where there is none.
Places = Any


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the inputs, the targets and the sample weights of a model lie among the columns of a batch.

    Attributes
    ----------
    x, y, sample_weight
        Structures as Keras takes them, with the number of a column in place of each array; None where there is none.
    """

    x: Places
    y: Places = None
    sample_weight: Places = None

    @classmethod
    def of(cls, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Layout, tuple[Any, ...]]:
        """A layout, and the columns that it speaks of, in order."""
        flat: list[Any] = []
        places = [_places(value, flat) for value in (x, y, sample_weight)]
        return cls(x=places[0], y=places[1], sample_weight=places[2]), tuple(flat)

    @classmethod
    def of_batch(cls, num_columns: int) -> Layout:
        """What a tuple of one to three columns means to Keras: inputs, targets, weights."""
        return cls(**dict(zip(("x", "y", "sample_weight"), range(num_columns), strict=False)))

    def pack(self, columns: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Inputs, targets and sample weights, of the columns of a batch."""
        return tuple(filled(places, columns.__getitem__) for places in (self.x, self.y, self.sample_weight))


def filled(places: Places, value_at: Callable[[int], Any]) -> Any:
    """A structure with values in place of numbers."""
    if places is None:
        return None
    if isinstance(places, Mapping):
        return {name: filled(below, value_at) for name, below in places.items()}
    if isinstance(places, tuple | list):
        return type(places)(filled(below, value_at) for below in places)
    return value_at(places)


def leaves(structure: Any) -> list[Any]:
    """What lies in a structure, in the order in which columns are numbered; None is left out."""
    flat: list[Any] = []
    _places(structure, flat)
    return flat


def _places(value: Any, flat: list[Any]) -> Places:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _places(below, flat) for name, below in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_places(below, flat) for below in value)
    flat.append(value)
    return len(flat) - 1
