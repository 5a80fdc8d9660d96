"""What a rank's loop mirrors, and gives, so that a lost rank can be replaced in place."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.trainers.common.rank_state import RankState


@dataclass(frozen=True)
class OwnState:
    """What is one rank's own at a border.

    Attributes
    ----------
    parts
        Of the rank's state, pickled.
    led
        Shared parts, and of the loop itself, that only the first rank has; None in others.
    """

    parts: bytes
    led: tuple[dict[str, Any], dict[str, Any]] | None = None


class Borders:
    """The borders of a loop: after each step of the optimizer, before the sync point.

    Parameters
    ----------
    group
        The ranks.
    state
        Of this rank.
    """

    def __init__(self, group: ReplaceableGroup, state: RankState) -> None:
        self._group, self._state = group, state
        self._mirrored: bytes | None = None
        self._is_proven = self._is_refused = False

    def mirror(self, border: int, led: dict[str, Any] | None) -> None:
        """Mirror what is this rank's own at the next border, before the last call that leads there.

        The first time it is not mirrored before the border: there it is seen whether it changes in between.
        """
        self._mirrored = self._own()
        known = self._is_proven and not self._is_refused
        self._group.mirror(border, self._packed(self._mirrored, led) if known else None)

    def reached(self, border: int, led: dict[str, Any] | None, alike: dict[str, Any]) -> None:
        """Note that this rank is at a border; ``alike`` is what the loop itself has alike in all ranks.

        What is a rank's own must be as it was mirrored: an optimizer that draws random numbers changes it.
        """
        if self._mirrored is not None and self._own() != self._mirrored:
            self._is_refused = True
        if self._is_refused:
            self._group.mirror(border, None)
        elif not self._is_proven or self._mirrored is None:
            self._group.mirror(border, self._packed(self._own(), led))
        self._is_proven = self._is_proven or self._mirrored is not None
        self._mirrored = None
        self._group.border(border, lambda: (self._state.take_alike(), alike))

    def begin(self, border: int, alike: dict[str, Any], *, is_proven: bool) -> None:
        """Begin at the border of the others, in place of a lost rank; what was its own is mirrored already."""
        self._is_proven = is_proven
        self._group.border(border, lambda: (self._state.take_alike(), alike))

    def settle(self, border: int, led: dict[str, Any] | None) -> None:
        """Mirror what is this rank's own at a border that is reached without a step, before a call confirms it."""
        self._mirrored = None
        self._group.mirror(border, None if self._is_refused else self._packed(self._own(), led))

    @property
    def is_proven(self) -> bool:
        """Return whether a step has shown that what is mirrored before a border stays until then."""
        return self._is_proven

    def refuse(self) -> None:
        """Mirror nothing from now on: then a loss of this rank is one of all."""
        self._is_refused = True

    def _own(self) -> bytes:
        return pickle.dumps(self._state.take_mirrored(), protocol=5)

    def _packed(self, own: bytes, led: dict[str, Any] | None) -> bytes:
        parts = None if led is None else (self._state.take_led(), led)
        return pickle.dumps(OwnState(own, parts), protocol=5)
