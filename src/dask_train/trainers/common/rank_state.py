"""What a rank has to mirror, save and restore between two steps; nothing else of it may survive a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class _Part:
    """How one part of the state is taken and restored.

    Attributes
    ----------
    take
        Return it, as a value that can be stored.
    restore
        Take over what ``take`` has returned, here or in another process.
    within_epoch
        Whether it means something within an epoch only.
    trained
        Whether it is part of what is trained.
    led
        Whether only the first rank has it, and others restore it without having one to take.
    may_begin_anew
        Whether a rank may do without it, where there are other ranks than then.
    regroup
        Return what a rank restores where there are other ranks than then; None if there is no rule for that.
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
    arrays, and lists and dicts of them; it is not changed any more once it was returned.

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
        """Register a part that all ranks have alike, such as weights: saved by rank 0, restored by all.

        Parameters
        ----------
        name
            Of the part.
        take, restore
            Return the value, in rank 0; and take it over, in every rank.
        within_epoch
            Whether it is of the running epoch, such as metrics: restored only where training resumes within one.
        trained
            Whether it is part of what is trained, such as weights. False for the course of training, such as what
            callbacks hold: it does not go back where training ends with the best checkpoint. Default: true.
        led
            Whether only the first rank has it, such as metrics over all rows. Default: false.

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
        """Register a part that each rank has for itself, such as a generator of random numbers.

        It is restored by the rank of the same number. A checkpoint of another number of ranks is refused where this
        part would have to be restored, unless it may begin anew or can be regrouped.

        Parameters
        ----------
        name
            Of the part.
        take, restore
            Return the value, and take it over.
        within_epoch
            Whether it is of the running epoch, such as sums over its rows: restored only where training resumes within
            one.
        may_begin_anew
            Whether it may stay as it is with another number of ranks than then. Training is then not exactly what it
            would have been, as with other random numbers.
        regroup
            Called with the values of all ranks and a rank's number, where there were other ranks: returns what that
            rank restores, such as a sum in the first one. Default: there is no such rule.

        Returns
        -------
        RankState
            This one.
        """
        _check_new(name, self._own)
        self._own[name] = _Part(take, restore, within_epoch, may_begin_anew=may_begin_anew, regroup=regroup)
        return self

    def passing(self, name: str, take: Callable[[], Any], restore: Callable[[Any], Any]) -> Self:
        """Register a part that changes within a step: a replacement of this rank needs its value of that moment.

        No checkpoint has it, as shared parts have it between two steps.
        """
        _check_new(name, self._passing)
        self._passing[name] = _Part(take, restore)
        return self

    def bound_to_ranks(self, *, within_epoch: bool) -> list[str]:
        """Return the names of own parts that resuming there needs, so that the ranks have to be as many as then."""
        return [
            name
            for name, part in self._own.items()
            if not (part.may_begin_anew or part.regroup) and (within_epoch or not part.within_epoch)
        ]

    def take_shared(self, *, within_epoch: bool = True) -> dict[str, Any]:
        """Return the values of shared parts; those of an epoch as well, or not."""
        return {name: part.take() for name, part in self._shared.items() if within_epoch or not part.within_epoch}

    def take_alike(self) -> dict[str, Any]:
        """Return the values of shared parts that every rank has, not only the first one."""
        return {name: part.take() for name, part in self._shared.items() if not part.led}

    def take_led(self) -> dict[str, Any]:
        """Return the values of shared parts that only the first rank has."""
        return {name: part.take() for name, part in self._shared.items() if part.led}

    def restore_some(self, values: Mapping[str, Any]) -> None:
        """Take over shared parts of a rank that continues in place of a lost one, as many as were given."""
        for name, value in values.items():
            self._shared[name].restore(value)

    def take_own(self) -> dict[str, Any]:
        """Return the values of this rank's own parts."""
        return {name: part.take() for name, part in self._own.items()}

    def take_mirrored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of this rank's own parts, and of those that change within a step."""
        return self.take_own(), {name: part.take() for name, part in self._passing.items()}

    def restore_mirrored(self, values: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
        """Take over what :meth:`take_mirrored` has returned, in place of a lost rank."""
        own, passing = values
        self.restore_own(own, within_epoch=True)
        for name, value in passing.items():
            self._passing[name].restore(value)

    def restore_shared(self, values: Mapping[str, Any], *, within_epoch: bool) -> None:
        """Take over shared parts; those of an epoch only where training resumes within one."""
        for name, part in self._shared.items():
            if within_epoch or not part.within_epoch:
                part.restore(values[name])

    def take_trained(self) -> dict[str, Any]:
        """Return the values of those shared parts that are trained; :meth:`restore_trained` takes them."""
        return {name: part.take() for name, part in self._shared.items() if part.trained and not part.within_epoch}

    def restore_trained(self, values: Mapping[str, Any]) -> None:
        """Take over those shared parts that are trained, as they were at the end of an epoch."""
        for name, part in self._shared.items():
            if part.trained and not part.within_epoch:
                part.restore(values[name])

    def restore_own(self, values: Mapping[str, Any], *, within_epoch: bool) -> None:
        """Take over what this rank has for itself; parts of an epoch only where training resumes within one.

        Parts without a value stay as they are.
        """
        for name, part in self._own.items():
            if name in values and (within_epoch or not part.within_epoch):
                part.restore(values[name])

    def regroup_own(self, everyones: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
        """Return what a rank restores of the values of other ranks; only parts that have a rule for that."""
        return {
            name: part.regroup([values[name] for values in everyones], rank)
            for name, part in self._own.items()
            if part.regroup is not None
        }

    @property
    def course(self) -> RankState:
        """Return the shared parts that are not trained, as a state of their own."""
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
