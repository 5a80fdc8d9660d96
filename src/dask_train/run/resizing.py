"""Change the number of workers while a run trains: which roles start, which leave, and when the run has that number.

Workers that join start while the run continues, until they wait for the others. Only then does the first worker get the
new number, and all meet anew at the end of its step. What goes wrong with them before does not affect the run.

With parameter servers no worker waits for another. There the first worker reports when batches are shared by the new
number, from some batch on. Then those that join are workers like all others, and those that leave are as long as they
have batches left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dask_train.run import events
from dask_train.run.commands import Free, Key, PlaceRoles
from dask_train.run.messages import Resize, Shared
from dask_train.run.state import ALIVE, Phase, ResizePhase, Role, RolePhase, RunState, SizeChange
from dask_train.run.state_update import StateUpdate

# The training role whose number may change.
ROLE = "worker"
_FIRST = (ROLE, 0)


def asked(turn: StateUpdate, event: events.ResizeAsked) -> None:
    """Start the workers that are to join; if some are to leave, send the first worker the number."""
    if _ongoing(turn) is not None:
        return
    turn.resize = SizeChange(number=event.number, size=event.size)
    if turn.phase is not Phase.RUNNING or not (turn.plan.apart or (turn.met and turn.plan.in_place)):
        _settle(turn, "it does not train")
    elif event.size == turn.plan.counts[ROLE]:
        _settle(turn)
    elif not (keys := joining(turn)):
        _tell_first(turn)
    else:
        for key in keys:
            if key in turn.roles:
                turn.place_anew(key)
            else:
                turn.roles[key] = Role(since=turn.time, progressed=turn.time)
        beside = _FIRST if turn.plan.one_host else None
        turn.do(PlaceRoles(roles=keys, timeout_s=event.timeout_s, beside=beside))


def cancelled(turn: StateUpdate, event: events.ResizeCancelled) -> None:
    """Continue with as many as there are, since nobody waits for the change; unless some know of it."""
    if turn.resize is not None and turn.resize.number == event.number:
        give_up_unless_told(turn, "it was cancelled")


def joining(turn: StateUpdate) -> tuple[Key, ...]:
    """Return the roles that are to join, until they have."""
    resize = _ongoing(turn)
    return () if resize is None else tuple((ROLE, rank) for rank in range(turn.plan.counts[ROLE], resize.size))


def is_to_leave(turn: StateUpdate, key: Key) -> bool:
    """Return whether a role is to leave, and the others have not continued without it yet."""
    resize = _told(turn)
    return resize is not None and key[0] == ROLE and resize.size <= key[1] < turn.plan.counts[ROLE]


def has_left(turn: StateUpdate, key: Key) -> bool:
    """Return whether a role that is to leave has done so."""
    return is_to_leave(turn, key) and turn.roles[key].phase is RolePhase.RETURNED


def leftover(turn: StateUpdate | RunState) -> list[Key]:
    """Return the roles that a settled change has left without a part in the run, and that have not ended yet."""
    known = turn.plan.role_keys()
    return [key for key, role in turn.roles.items() if key not in known and role.phase in ALIVE]


def members(turn: StateUpdate) -> tuple[Key, ...]:
    """Return the training roles that wait for each other, in the order of their ranks: some may be about to join."""
    joined = joining(turn) if _told(turn) is not None else ()
    return (*turn.plan.training_keys(), *joined)


def counts_of(turn: StateUpdate, key: Key) -> dict[str, int]:
    """Return how many there are of each role for one that starts, where that is another number than at the beginning.

    With parameter servers, only those that join count themselves: a first worker that brings the first weights lets
    as many share the batches as it is given, and those that join may never do so.
    """
    if turn.resize is None:
        return {}
    joins = joining(turn)
    if turn.plan.apart and key not in joins:
        return {**turn.plan.counts}
    return {**turn.plan.counts, ROLE: turn.plan.counts[ROLE] + len(joins)}


def wait(turn: StateUpdate) -> None:
    """Tell the first worker, once all that join wait for the others."""
    resize, keys = _ongoing(turn), joining(turn)
    if resize is None or resize.phase is not ResizePhase.STARTING or not keys:
        return
    places = [turn.roles[key].meets_at for key in keys]
    if not all(places):
        return
    if turn.plan.one_host and {place.rpartition(":")[0] for place in places} != {turn.met_on}:
        give_up(turn, "there is room for more workers on other hosts only")
    else:
        _tell_first(turn)


def started(turn: StateUpdate, key: Key) -> None:
    """Tell the first worker: again, if it has taken a lost one's place; or once all run that join, if none meets."""
    resize, keys = _ongoing(turn), joining(turn)
    if resize is None:
        return
    is_first_again = key == _FIRST and resize.phase is ResizePhase.TOLD
    joins = turn.plan.apart and key in keys and resize.phase is ResizePhase.STARTING
    if is_first_again or (joins and all(turn.roles[each].phase is RolePhase.RUNNING for each in keys)):
        _tell_first(turn)


def shared(turn: StateUpdate, key: Key, message: Shared) -> None:
    """Note that batches are shared by the new number; those that leave still have some of before."""
    resize = _ongoing(turn)
    if key == _FIRST and resize is not None and resize.phase is ResizePhase.TOLD and resize.size == message.size:
        turn.resize = replace(resize, phase=ResizePhase.SHARED)
        done_if_left(turn)


def done_if_left(turn: StateUpdate) -> None:
    """Let the run have the new number once those have ended that leave, if no worker waits for another."""
    resize = _ongoing(turn)
    if resize is not None and resize.phase is ResizePhase.SHARED:
        left = [(ROLE, rank) for rank in range(resize.size, turn.plan.counts[ROLE])]
        if all(turn.roles[key].phase is RolePhase.RETURNED for key in left):
            done(turn)


def meeting(turn: StateUpdate) -> tuple[Key, ...]:
    """Return the roles that meet anew, if they all wait for each other in their new number.

    Those that would meet in either number do so in the new one if any role has completed the last call in the old one:
    one that waits in the new number, or one that has left.
    """
    resize = _told(turn)
    if resize is None:
        return ()
    keys = tuple((ROLE, rank) for rank in range(resize.size))
    roles = [turn.roles[key] for key in keys]
    if not all(role.meets_at and resize.size in (role.meets_size or resize.size, role.meets_or) for role in roles):
        return ()
    some_have_left = any(has_left(turn, key) for key in turn.plan.training_keys())
    is_sure = some_have_left or any(role.meets_size == resize.size for role in roles)
    return keys if is_sure else ()


def waits_as_before(turn: StateUpdate) -> bool:
    """Return whether those that wait do so for as many as there were, as after a loss before the number was sent.

    If all are new, none knows of a number. None has the state either, which they learn when they meet.
    """
    if _told(turn) is None:
        return True
    sizes = {turn.roles[key].meets_size for key in turn.plan.training_keys()}
    return turn.plan.counts[ROLE] in sizes or not any(sizes)


def done(turn: StateUpdate) -> None:
    """Note that the run continues with the number that was asked for."""
    resize = _told(turn)
    assert resize is not None
    left = [(ROLE, rank) for rank in range(resize.size, turn.plan.counts[ROLE])]
    turn.plan = replace(turn.plan, counts={**turn.plan.counts, ROLE: resize.size})
    _settle(turn)
    _let_go(turn, left)


def not_missed(turn: StateUpdate, keys: Sequence[Key], cause: str) -> list[Key]:
    """Return those of lost roles that the run misses: not those that have left it, or have not joined it yet."""
    known, joins = turn.plan.role_keys(), joining(turn)
    waited_for = joins if _told(turn) is not None else ()
    missed = [key for key in keys if key in known or key in waited_for]
    for key in keys:
        if key not in missed:
            turn.move(key, RolePhase.GONE)
    if any(key in joins and key not in missed for key in keys):
        give_up(turn, cause)
    return missed


def give_up(turn: StateUpdate, why: str) -> None:
    """Continue with as many as there are; those that were to join end."""
    keys = joining(turn)
    _settle(turn, why)
    _let_go(turn, keys)


def give_up_unless_told(turn: StateUpdate, why: str) -> None:
    """Continue with as many as there are, unless some know of another number."""
    if (resize := _ongoing(turn)) is not None and resize.phase is ResizePhase.STARTING:
        give_up(turn, why)


def end(turn: StateUpdate, why: str = "the run has come to its end") -> None:
    """Cancel a change everywhere: no role meets in that number any more."""
    if _ongoing(turn) is not None:
        give_up(turn, why)


def end_or_complete(turn: StateUpdate, why: str) -> None:
    """Cancel a change where all start again, or complete it where a checkpoint may know more workers than before.

    With parameter servers, the first worker reports that more share the batches some time after they do. Fewer workers
    than a checkpoint knows could not resume from it; more can.
    """
    resize = _told(turn)
    if resize is not None and turn.plan.apart and resize.size > turn.plan.counts[ROLE]:
        done(turn)
    else:
        end(turn, why)


def returned(turn: StateUpdate, key: Key) -> None:
    """Cancel a change where a worker has returned that was not to leave: no other number follows any more.

    With parameter servers, others may train on in the new number. The first worker returns after all of them, and
    after it has told of that number.
    """
    if not is_to_leave(turn, key) and (key == _FIRST or not turn.plan.apart):
        end(turn)
    done_if_left(turn)


def _let_go(turn: StateUpdate, keys: Sequence[Key]) -> None:
    """Give back the room of roles that have left, or do not join; those end that do not end by themselves."""
    placed = tuple(key for key in keys if turn.roles[key].phase is not RolePhase.PLACING)
    for key in keys:
        role = turn.roles[key]
        # Where workers meet, one that runs and does not wait has left, and is about to return.
        if turn.plan.apart or role.phase is not RolePhase.RUNNING or role.meets_at:
            turn.forget(key)
    if placed:
        turn.do(Free(roles=placed))


def _tell_first(turn: StateUpdate) -> None:
    assert turn.resize is not None
    turn.resize = replace(turn.resize, phase=ResizePhase.TOLD)
    turn.tell(_FIRST, Resize(size=turn.resize.size))


def _settle(turn: StateUpdate, why: str = "") -> None:
    assert turn.resize is not None
    turn.resize = replace(turn.resize, phase=ResizePhase.SETTLED, why=why)


def _ongoing(turn: StateUpdate) -> SizeChange | None:
    return None if turn.resize is None or turn.resize.phase is ResizePhase.SETTLED else turn.resize


def _told(turn: StateUpdate) -> SizeChange | None:
    told = (ResizePhase.TOLD, ResizePhase.SHARED)
    return turn.resize if turn.resize is not None and turn.resize.phase in told else None
