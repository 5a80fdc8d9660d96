"""The state of a rank that is mirrored, saved and restored between two steps; a rank has no other lasting state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class _Part:
    """Functions and rules to save and restore one part of the state.

    Attributes
    ----------
    take
        Return the part's value, which can be stored.
    restore
        Restore a value of ``take``, in this or another process.
    within_epoch
        Whether the value is of use only within the epoch it was taken in.
    trained
        Whether the part belongs to the trained model.
    led
        Whether only the first rank takes a value; all ranks restore it.
    may_begin_anew
        Whether the part may keep its initial value if the number of ranks has changed.
    regroup
        Return the value a rank restores if the number of ranks has changed; None if there is no rule for that.
    """

    take: Callable[[], Any]
    restore: Callable[[Any], Any]
    within_epoch: bool = False
    trained: bool = True
    led: bool = False
    may_begin_anew: bool = False
    regroup: Callable[[list[Any], int], Any] | None = None


class RankState:
    """The state of one rank in two kinds of parts: shared by all ranks, and the rank's own.

    Every rank registers the same parts. A part's value consists of None, booleans, numbers, strings, bytes, NumPy
    arrays, and lists and dicts of them; a value must not change after it was returned.

    Examples
    --------
    >>> state = RankState()
    >>> state.shared("centers", lambda: model.centers.copy(), model.set_centers)
    >>> state.own("random", lambda: rng.bit_generator.state, set_random)
    """

    def __init__(self) -> None:
        self._shared: dict[str, _Part] = {}
        self._own: dict[str, _Part] = {}
        self._passing: dict[str, _Part] = {}

    def shared(
        self,
        name: str,
        take: Callable[[], Any],
        restore: Callable[[Any], Any],
        *,
        within_epoch: bool = False,
        trained: bool = True,
        led: bool = False,
    ) -> Self:
        """Register a part that is equal on all ranks, such as weights: saved by rank 0, restored by all.

        Parameters
        ----------
        name
            Name of the part.
        take, restore
            Return the value, in rank 0; and restore it, in every rank.
        within_epoch
            Whether the value belongs to the running epoch, such as metrics: restored only if training resumes within
            an epoch. Default: false.
        trained
            Whether the part belongs to the trained model, such as weights. False for the progress of training, such
            as the state of callbacks: ``restore_best`` leaves it as it is. Default: true.
        led
            Whether only the first rank has the part, such as metrics over all rows. Default: false.

        Returns
        -------
        RankState
            This one.
        """
        _check_new(name, self._shared)
        self._shared[name] = _Part(take, restore, within_epoch, trained, led)
        return self

    def own(
        self,
        name: str,
        take: Callable[[], Any],
        restore: Callable[[Any], Any],
        *,
        within_epoch: bool = False,
        may_begin_anew: bool = False,
        regroup: Callable[[list[Any], int], Any] | None = None,
    ) -> Self:
        """Register a part that differs between ranks, such as a random generator.

        The rank of the same number restores it. A checkpoint of another number of ranks is refused if this part would
        have to be restored, unless it may begin anew or can be regrouped.

        Parameters
        ----------
        name
            Name of the part.
        take, restore
            Return the value, and restore it.
        within_epoch
            Whether the value belongs to the running epoch, such as sums over its rows: restored only if training
            resumes within an epoch. Default: false.
        may_begin_anew
            Whether the part may keep its initial value if the number of ranks has changed. Training then differs from
            an uninterrupted one, as with other random numbers. Default: false.
        regroup
            Called with the values of all former ranks and a rank's number, if the number of ranks has changed; returns
            the value for that rank, such as a sum for the first one. Default: there is no such rule.

        Returns
        -------
        RankState
            This one.
        """
        _check_new(name, self._own)
        self._own[name] = _Part(take, restore, within_epoch, may_begin_anew=may_begin_anew, regroup=regroup)
        return self

    def passing(self, name: str, take: Callable[[], Any], restore: Callable[[Any], Any]) -> Self:
        """Register state that changes within a step.

        It is mirrored for a replacement of this rank, but not checkpointed: between two steps a shared part has it.
        """
        _check_new(name, self._passing)
        self._passing[name] = _Part(take, restore)
        return self

    def bound_to_ranks(self, *, within_epoch: bool) -> list[str]:
        """Return the names of own parts that can be restored only by the same number of ranks."""
        return [
            name
            for name, part in self._own.items()
            if not (part.may_begin_anew or part.regroup) and (within_epoch or not part.within_epoch)
        ]

    def take_shared(self, *, within_epoch: bool = True) -> dict[str, Any]:
        """Return the values of shared parts, with or without those of the running epoch."""
        return {name: part.take() for name, part in self._shared.items() if within_epoch or not part.within_epoch}

    def take_alike(self) -> dict[str, Any]:
        """Return the values of shared parts that every rank has."""
        return {name: part.take() for name, part in self._shared.items() if not part.led}

    def take_led(self) -> dict[str, Any]:
        """Return the values of shared parts that only the first rank has."""
        return {name: part.take() for name, part in self._shared.items() if part.led}

    def restore_some(self, values: Mapping[str, Any]) -> None:
        """Restore the shared parts in ``values``, in a rank that replaces a lost one; others stay."""
        for name, value in values.items():
            self._shared[name].restore(value)

    def take_own(self) -> dict[str, Any]:
        """Return the values of this rank's own parts."""
        return {name: part.take() for name, part in self._own.items()}

    def take_mirrored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of this rank's own parts, and of those that change within a step."""
        return self.take_own(), {name: part.take() for name, part in self._passing.items()}

    def restore_mirrored(self, values: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
        """Restore values of :meth:`take_mirrored`, in place of a lost rank."""
        own, passing = values
        self.restore_own(own, within_epoch=True)
        for name, value in passing.items():
            self._passing[name].restore(value)

    def restore_shared(self, values: Mapping[str, Any], *, within_epoch: bool) -> None:
        """Restore shared parts; those of an epoch only if training resumes within one."""
        for name, part in self._shared.items():
            if within_epoch or not part.within_epoch:
                part.restore(values[name])

    def take_trained(self) -> dict[str, Any]:
        """Return the values of the shared parts of the trained model, for :meth:`restore_trained`."""
        return {name: part.take() for name, part in self._shared.items() if part.trained and not part.within_epoch}

    def restore_trained(self, values: Mapping[str, Any]) -> None:
        """Restore the shared parts of the trained model, as they were at the end of an epoch."""
        for name, part in self._shared.items():
            if part.trained and not part.within_epoch:
                part.restore(values[name])

    def restore_own(self, values: Mapping[str, Any], *, within_epoch: bool) -> None:
        """Restore this rank's own parts; those of an epoch only if training resumes within one.

        Parts without a value stay as they are.
        """
        for name, part in self._own.items():
            if name in values and (within_epoch or not part.within_epoch):
                part.restore(values[name])

    def regroup_own(self, everyones: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
        """Return the values that a rank restores of those of all former ranks; only parts with a ``regroup`` rule."""
        return {
            name: part.regroup([values[name] for values in everyones], rank)
            for name, part in self._own.items()
            if part.regroup is not None
        }

    @property
    def course(self) -> RankState:
        """Return the shared parts that do not belong to the trained model, as a state of their own."""
        course = RankState()
        course._shared = {name: part for name, part in self._shared.items() if not part.trained}
        return course

    @property
    def names(self) -> dict[str, list[str]]:
        """Names of all parts, by kind."""
        return {"shared": sorted(self._shared), "own": sorted(self._own)}

    @property
    def has_own(self) -> bool:
        """Return whether any part is the rank's own."""
        return bool(self._own)


def _check_new(name: str, parts: Mapping[str, _Part]) -> None:
    if name in parts:
        raise ValueError(f"The state has a part {name!r} already. Give each part a name of its own.")
