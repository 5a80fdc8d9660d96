"""What has taken too long. Every wait of a run ends here, with an error that names the roles that were waited for."""

from __future__ import annotations

from collections.abc import Sequence

from dask_train.run import events, lost_roles, resizing
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.state import ALIVE, Phase, RolePhase, name_of
from dask_train.run.state_update import StateUpdate

# A role raises by itself when its peers don't come in time; after this time it counts as hung.
RENDEZVOUS_MARGIN_S = 5.0
# Workers that are stopped, and can be replaced in place, are looked for after this part of the deadline for progress:
# those that wait for them give up after the whole.
IN_PLACE_PART = 0.5


def ticked(update: StateUpdate, _: events.Ticked) -> None:
    """Time has passed."""
    lost_roles.resolve_suspicion(update)
    if update.phase in (Phase.ENDING, Phase.RESTARTING):
        _give_up_on_killed(update)
    elif update.phase is Phase.STOPPING:
        if update.time - update.since > update.plan.stop_s:
            _note_killed(update)
            update.enter(Phase.ENDING)
            update.kill_all()
    elif update.phase is Phase.LAUNCHING:
        _launching(update)
    elif update.phase is Phase.RUNNING:
        _late_replacements(update)
        if update.phase is Phase.RUNNING:
            _end_leftovers(update)
            _give_up_on_killed(update)
            _stalled(update)
    elif update.phase is Phase.COMPLETING:
        _services_linger(update)
        _others_linger(update)
        _give_up_on_killed(update)


def _note_killed(update: StateUpdate) -> None:
    """Note who has not returned in time after the run was stopped, and returns nothing."""
    phases = (RolePhase.MEETING, RolePhase.RUNNING)
    keys = [key for key, role in update.roles.items() if role.phase in phases and key[0] not in update.plan.services]
    if keys:
        update.note(
            f"{', '.join(map(name_of, keys))} {'was' if len(keys) == 1 else 'were'} killed, and returned nothing: "
            f"train.stop.timeout ({update.plan.stop_s:g} s) had passed since the run was stopped."
        )


def _late(update: StateUpdate, phase: RolePhase, limit_s: float) -> list[Key]:
    return [key for key, role in update.roles.items() if role.phase is phase and update.time - role.since > limit_s]


def _launching(update: StateUpdate) -> None:
    missing = _late(update, RolePhase.STARTING, update.plan.launch_s)
    starting = sum(role.phase in (RolePhase.PLACING, RolePhase.STARTING) for role in update.roles.values())
    if missing:
        num_roles = len(update.plan.role_keys())
        where = "; ".join(f"{name_of(key)} on {update.roles[key].address}" for key in missing)
        num_up = f"Only {num_roles - starting} of {num_roles} roles started"
        what = f"{num_up} within {update.plan.launch_s:g} s; missing: {where}."
        cause = "Their Dask workers may be busy, paused or short of memory, or the framework is slow to import there."
        _end_launch(update, missing, what, cause, "Look at the Dask workers' logs, or raise train.launch.timeout.")
    elif not starting and update.time - update.progressed > update.plan.progress_s:  # all are up, so they wait for data
        update.end(
            Finish(
                verdict=Verdict.STALLED,
                what=f"The data of the run made no progress for {update.plan.progress_s:g} s.",
                cause="Dask computes no partition of it, or none reaches the Dask workers of the roles.",
                change="Look at the Dask dashboard, persist the data before training, or raise train.progress.timeout.",
            )
        )


def _end_launch(update: StateUpdate, keys: Sequence[Key], what: str, cause: str, change: str) -> None:
    role, rank = keys[0]
    update.end(Finish(verdict=Verdict.LAUNCH, what=what, cause=cause, change=change, role=role, rank=rank))


def _late_replacements(update: StateUpdate) -> None:
    for key in _late(update, RolePhase.STARTING, update.plan.launch_s):
        cause = f"it did not start on {update.roles[key].address} within {update.plan.launch_s:g} s."
        lost_roles.give_up(update, key, cause)
    for key in _late(update, RolePhase.READY, update.plan.progress_s):
        if update.time - update.roles[key].progressed > update.plan.progress_s:  # else its data is arriving
            lost_roles.give_up(update, key, f"its data did not reach it within {update.plan.progress_s:g} s.")
    limit_s = update.plan.rendezvous_s + RENDEZVOUS_MARGIN_S
    meeting = _late(update, RolePhase.MEETING, limit_s)
    if any(key in resizing.joining(update) for key in meeting):
        resizing.give_up_unless_told(update, f"{name_of(meeting[0])} did not begin within {limit_s:g} s.")
    meeting = [key for key in meeting if update.roles[key].phase is RolePhase.MEETING]
    if meeting:
        names = ", ".join(map(name_of, meeting))
        what = f"{names} did not meet the other roles within {update.plan.rendezvous_s:g} s."
        cause = "A firewall between the Dask workers' hosts, or a peer that hangs."
        _end_launch(update, meeting, what, cause, "Try dask train doctor, or raise train.rendezvous.timeout.")


def _end_leftovers(update: StateUpdate) -> None:
    """End workers that have left the run, and do not return: another change of the number waits for them."""
    for key in () if resizing.joining(update) else resizing.leftover(update):
        if update.time - update.last_moved(update.roles[key]) > update.plan.progress_s:
            update.kill(key)


def _services_linger(update: StateUpdate) -> None:
    """Services have been asked to stop with the training roles' return; they hold up no other role."""
    others = [role for key, role in update.roles.items() if key[0] not in update.plan.services]
    if not any(role.phase in (*ALIVE, RolePhase.PLACING) for role in others):
        last = max((role.since for role in others), default=update.since)
        if update.time - last > update.plan.stop_s:
            for key in list(update.roles):
                update.kill(key)


def _others_linger(update: StateUpdate) -> None:
    """Look into roles that don't train and work on, or hang, though they were asked to stop as well, and end them."""
    if late(update):
        lost_roles.look(update)


def late(update: StateUpdate) -> list[Key]:
    """Return the roles that have not returned, although the training roles have for as long as anything may take."""
    if update.time - update.since <= update.plan.progress_s:
        return []
    waited_for = (RolePhase.PLACING, RolePhase.STARTING, RolePhase.READY, RolePhase.MEETING, RolePhase.RUNNING)
    keys = [key for key, role in update.roles.items() if role.phase in waited_for]
    return [key for key in keys if key[0] not in update.plan.services]


def _stalled(update: StateUpdate) -> None:
    joining = resizing.joining(update)
    placing = any(role.phase is RolePhase.PLACING for key, role in update.roles.items() if key not in joining)
    if placing:
        return
    if update.time - update.last_progress() > update.plan.progress_s:
        lost_roles.look(update)
        return
    if wait_in_place(update):
        training = [key for key in update.plan.training_keys() if key in update.roles]
        if all(update.roles[key].looked_into < update.last_progress() for key in training):
            for key in training:
                update.change(key, looked_into=update.time)
            lost_roles.look(update)
        return
    hanging = roles_that_hang(update)
    # If no role has made progress of late, the whole run may hang, see above.
    latest = max((update.roles[key].progressed for key in update.plan.training_keys()), default=0.0)
    others_go_on = update.time - latest < update.plan.progress_s / 2
    if others_go_on and any(update.time - update.roles[key].looked_into > update.plan.progress_s for key in hanging):
        for key in hanging:  # one that works for long, and answers, is inspected again after the same time
            update.change(key, looked_into=update.time)
        lost_roles.look(update)


def wait_in_place(update: StateUpdate) -> bool:
    """Return whether workers that can continue in place have waited for half of the deadline for progress."""
    idle_s = update.time - update.last_progress()
    return update.plan.in_place and update.met and idle_s > IN_PLACE_PART * update.plan.progress_s


def roles_that_hang(update: StateUpdate) -> list[Key]:
    """List the training roles that have made no progress for too long, whatever the others do.

    Where roles wait for each other, they all hang soon, and :meth:`StateUpdate.last_progress` tells.
    """
    if update.wait_for_each_other():
        return []
    begun = (RolePhase.MEETING, RolePhase.RUNNING)  # it may be frozen before its function's start is reported
    running = [key for key in update.plan.training_keys() if update.roles[key].phase in begun]
    return [key for key in running if update.time - update.last_moved(update.roles[key]) > update.plan.progress_s]


def _give_up_on_killed(update: StateUpdate) -> None:
    """Give up on a killed process whose agent does not say that it is gone."""
    for key in _late(update, RolePhase.KILLED, update.plan.stop_s):
        update.move(key, RolePhase.GONE)
