"""The course of a run: ``step(state, event) -> (state, commands)``, without a clock, a thread or a file.

What happens to roles is decided here, except for lost roles (:mod:`dask_train.run.lost_roles`) and deadlines
(:mod:`dask_train.run.deadlines`), and all of them write on a :class:`~dask_train.run.state_update.StateUpdate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.run import deadlines, events, lost_roles, messages, resizing
from dask_train.run.commands import Command, Finish, Free, Key, PlaceRoles, Verdict
from dask_train.run.state import ALIVE, Phase, Role, RolePhase, RunPlan, RunState, name_of
from dask_train.run.state_update import NOT_MEETING, StateUpdate

_RETURNED = "the training roles have returned"


def begin(plan: RunPlan, time: float) -> tuple[RunState, tuple[Command, ...]]:
    """Return the state of a run that has just been asked for, and what is to be done first."""
    roles = {key: Role(since=time, progressed=time) for key in plan.role_keys()}
    state = RunState(plan=plan, since=time, progressed=time, roles=roles, data_ready=not plan.with_data)
    return state, (PlaceRoles(roles=plan.role_keys(), timeout_s=plan.placement_s),)


def step(state: RunState, event: events.Event) -> tuple[RunState, tuple[Command, ...]]:
    """Return what a run becomes by an event, and what is to be done.

    A message of an attempt that has been replaced, and whatever comes when the run is over, changes nothing.
    """
    if state.phase is Phase.OVER:
        return state, ()
    update = StateUpdate(state, event.time)
    if event.of is None:
        ACTIONS[type(event.what)](update, event.what)
    elif update.roles[event.of.key].attempt == event.of.attempt:
        ROLE_ACTIONS[type(event.what)](update, event.of.key, event.what)
    else:
        return state, ()
    update.finish_when_gone()
    return update.result()


def _placed(update: StateUpdate, event: events.Placed) -> None:
    keys = [key for key in update.roles if "/".join(map(str, key)) in event.places]
    if update.phase not in (Phase.PLACING, Phase.RUNNING, Phase.COMPLETING, Phase.LAUNCHING):
        update.do(Free(roles=tuple(keys)))
        return
    keys = [key for key in keys if update.roles[key].phase is RolePhase.PLACING]
    if update.phase is Phase.PLACING:
        if len(keys) < len(update.plan.role_keys()):  # granted to one before all were to start again, taken back since
            return
        update.enter(Phase.LAUNCHING)
    update.progressed = update.time
    for key in keys:
        update.move(key, RolePhase.STARTING, address=event.places["/".join(map(str, key))], loaded=False)
        counts, joins = resizing.counts_of(update, key), key in resizing.joining(update)
        update.tell(key, messages.StartProcess(counts=counts, joins=joins, alone=update.roles[key].alone))
        if update.data_ready and key[0] in update.plan.with_data:
            update.tell(key, messages.Load())


def _no_room(update: StateUpdate, event: events.NoRoom) -> None:
    if not any(role.phase is RolePhase.PLACING for role in update.roles.values()):  # it is no longer awaited
        return
    if set(event.roles) & set(resizing.joining(update)):
        resizing.give_up_unless_told(update, f"{event.wanted} {event.why}")
        if update.resize is not None and update.resize.why:
            return
    if update.phase is Phase.COMPLETING:
        update.note(f"{update.losses[-1]} There was no room to replace it: {event.why}")
        for key in [key for key, role in update.roles.items() if role.phase is RolePhase.PLACING]:
            update.forget(key)
    elif update.num_restarts:
        update.end(
            Finish(
                verdict=Verdict.ROLE_LOST,
                what=f"{update.losses[-1]} There is no room to replace it: {event.why}",
                cause=lost_roles.earlier(update.losses[:-1]),
                change=event.change,
            )
        )
    else:
        update.end(Finish(verdict=Verdict.PLACEMENT, what=event.wanted, cause=event.why, change=event.change))


def _ready(update: StateUpdate, key: Key, message: messages.Ready) -> None:
    if update.roles[key].phase is RolePhase.STARTING:
        update.move(key, RolePhase.READY, peer=message.peer, pid=message.pid)
        update.progressed = update.time
        _let_go(update)


def _loaded(update: StateUpdate, key: Key, _: messages.Loaded) -> None:
    update.change(key, loaded=True)
    update.progressed = update.time
    _let_go(update)


def _data_progressed(update: StateUpdate, _: messages.DataProgressed) -> None:
    update.progressed = update.time


def _data_came(update: StateUpdate, key: Key, _: messages.DataProgressed) -> None:
    update.made_progress(key)


def _data_ready(update: StateUpdate, _: events.DataReady) -> None:
    update.data_ready = True
    update.progressed = update.time
    for key, role in update.roles.items():
        if role.phase in (RolePhase.STARTING, RolePhase.READY) and key[0] in update.plan.with_data:
            update.tell(key, messages.Load())


def _let_go(update: StateUpdate) -> None:
    """Start the functions of all roles together when a gang is launched; of a replacement, as soon as it is ready."""
    waiting = [key for key, role in update.roles.items() if role.phase is RolePhase.READY and update.has_data(key)]
    if update.phase is Phase.LAUNCHING:
        if len(waiting) < len(update.plan.role_keys()):
            return
        update.enter(Phase.RUNNING)
    if update.phase in (Phase.RUNNING, Phase.COMPLETING):
        for key in waiting:
            update.move(key, RolePhase.MEETING)
            update.tell(key, messages.Go())
            if update.phase is Phase.COMPLETING:  # the others have been asked already
                update.tell(key, messages.Stop(reason=_RETURNED))


def _started(update: StateUpdate, key: Key, _: messages.Started) -> None:
    if update.roles[key].phase is RolePhase.MEETING:
        update.move(key, RolePhase.RUNNING)
        update.made_progress(key)
        resizing.started(update, key)


def _progressed(update: StateUpdate, key: Key, _: events.Progressed) -> None:
    update.made_progress(key)


def _awaits_client(update: StateUpdate, key: Key, event: events.AwaitsClient) -> None:
    update.change(key, awaits_client=event.awaits)


def _client_waits(update: StateUpdate, event: events.ClientWaits) -> None:
    update.client_waits = update.time if event.waits else None


def _meets(update: StateUpdate, key: Key, message: messages.Meets) -> None:
    update.change(key, meets_at=message.address, meets_size=message.size, meets_or=message.or_size)
    if key in resizing.leftover(update) and key not in resizing.joining(update):
        update.forget(key)  # the others have continued without it, which it did not know yet
    resizing.wait(update)
    _let_meet(update)


def _let_meet(update: StateUpdate) -> None:
    """Tell training roles that wait for each other where all are, once all do; or that one has returned."""
    other_number = resizing.meeting(update)
    members = other_number or update.plan.training_keys()
    waiting = {key: update.roles[key].meets_at for key in members if update.roles[key].meets_at}
    ended = [key for key in members if update.roles[key].phase is RolePhase.RETURNED]
    returned = next((key for key in ended if not resizing.is_to_leave(update, key)), None)
    if returned is not None:
        answer = messages.Met(error=f"{name_of(returned)} has returned, and takes part in no collective call any more")
    elif len(waiting) == len(members) and (other_number or resizing.waits_as_before(update)):
        hosts = {address.rpartition(":")[0] for address in waiting.values()}
        update.met, update.met_on = True, min(hosts)
        attempts = tuple(update.roles[key].attempt for key in members) if update.plan.in_place else ()
        answer = messages.Met(addresses=tuple(waiting.values()), attempts=attempts)
    else:
        return
    for key in waiting:
        update.tell(key, answer)
        update.change(key, **NOT_MEETING)
    if other_number:
        resizing.done(update)


def _ended(update: StateUpdate, key: Key, _: messages.Ended) -> None:
    if update.roles[key].phase in (RolePhase.GONE, RolePhase.RETURNED):
        return
    update.move(key, RolePhase.RETURNED)
    update.made_progress(key)
    if key in update.plan.training_keys():
        resizing.returned(update, key)
    _let_meet(update)
    training = [update.roles[key].phase for key in update.plan.training_keys()]
    if update.phase is Phase.RUNNING and all(phase is RolePhase.RETURNED for phase in training):
        update.enter(Phase.COMPLETING)
        for other, role in update.roles.items():
            if role.phase in (RolePhase.MEETING, RolePhase.RUNNING):
                update.tell(other, messages.Stop(reason=_RETURNED))
            elif other[0] in update.plan.services:  # one that is being replaced has no role to serve
                update.forget(other)


def _stop_asked(update: StateUpdate, message: messages.Stop) -> None:
    if update.phase in (Phase.STOPPING, Phase.ENDING):
        return
    resizing.give_up_unless_told(update, f"the run stops: {message.reason}")
    update.enter(Phase.STOPPING)
    if update.suspicion is not None:
        update.note(f"Before the run was stopped: {lost_roles.cause_of(update.suspicion)}")
        update.suspicion = None
    update.ending = Finish(verdict=Verdict.OK, what=message.reason)
    for key, role in update.roles.items():
        if role.phase in (RolePhase.MEETING, RolePhase.RUNNING):
            update.tell(key, message)
        else:
            update.forget(key)


def _data_failed(update: StateUpdate, message: messages.DataFailed) -> None:
    update.end(Finish(verdict=Verdict.DATA, what=message.error))


def _driver_failed(update: StateUpdate, event: events.DriverFailed) -> None:
    update.end(Finish(verdict=Verdict.DRIVER, what=event.error))


def _diagnosed(update: StateUpdate, event: events.Diagnosed) -> None:
    if not update.diagnosing:
        return
    update.diagnosing = False
    if update.phase is Phase.COMPLETING:
        _end_the_late(update, event)
    if update.phase is not Phase.RUNNING:
        return  # it goes down, or starts again, meanwhile
    has_raised = update.suspicion is not None and update.suspicion.unanswered
    others_move = not has_raised and update.time - update.last_progress() < update.plan.progress_s
    blamed = deadlines.roles_that_hang(update) if others_move else list(update.roles)
    silent = [key for key in event.silent if key in blamed and update.roles[key].phase in ALIVE]
    frozen = [key for key in event.frozen if key in blamed and update.roles[key].phase in ALIVE]
    stopped = [key for key in event.stopped if update.roles[key].phase in ALIVE]
    if not has_raised and deadlines.wait_in_place(update) and lost_roles.can_continue_without(update, stopped):
        lost_roles.fence(update, stopped)
    elif silent:
        lost_roles.cut_off(update, silent)
    elif frozen and (lost_roles.can_be_replaced(update, frozen) or lost_roles.can_start_again(update, frozen, stopped)):
        lost_roles.give_up_frozen(update, frozen, alone=others_move)
    elif frozen:  # also if another role has raised, which was waiting for it
        who = ", ".join(map(name_of, frozen)) if others_move else "No role"
        _stall(update, event, f"{who} made {'no ' if others_move else ''}progress")
    elif has_raised:
        lost_roles.resolve_suspicion(update, at_once=True)
    elif not others_move:  # else something moved while the picture was taken, or what hangs answers, and works
        _stall(update, event, "No role made progress")


def _stall(update: StateUpdate, event: events.Diagnosed, what: str) -> None:
    named = "; ".join(event.stalled) or "all of them answer"
    update.end(
        Finish(
            verdict=Verdict.STALLED,
            what=f"{what} for {update.plan.progress_s:g} s: {named}.",
            cause="Who waits for whom is in the stacks below.",
            change="Mend what hangs. Batches, reports, messages and checkpoints are progress; to wait and to call "
            "should_stop() is none. Where a role works for longer without any, call session.report() now and "
            "then, or raise train.progress.timeout.",
        )
    )


def _end_the_late(update: StateUpdate, event: events.Diagnosed) -> None:
    """End what still runs although the training roles have returned long ago."""
    keys = deadlines.late(update)
    if keys:
        names = ", ".join(map(name_of, keys))
        doing = f": {'; '.join(event.stalled)}" if event.stalled else ""
        update.note(
            f"{names} had not returned {update.plan.progress_s:g} s after the training roles and "
            f"{'was' if len(keys) == 1 else 'were'} ended{doing}."
        )
    for key in keys:
        update.forget(key)


ACTIONS: dict[type[messages.Message | events.DriverEvent], Callable[[StateUpdate, Any], None]] = {
    events.Placed: _placed,
    events.NoRoom: _no_room,
    messages.DataProgressed: _data_progressed,
    events.DataReady: _data_ready,
    messages.DataFailed: _data_failed,
    events.ClientWaits: _client_waits,
    messages.Stop: _stop_asked,
    events.ResizeAsked: resizing.asked,
    events.ResizeCancelled: resizing.cancelled,
    events.DriverFailed: _driver_failed,
    events.Diagnosed: _diagnosed,
    messages.WorkerLost: lost_roles.worker_lost,
    events.AgentFailed: lost_roles.agent_failed,
    events.Ticked: deadlines.ticked,
}

# What is about one role process.
ROLE_ACTIONS: dict[type[messages.Message | events.DriverEvent], Callable[[StateUpdate, Key, Any], None]] = {
    messages.Ready: _ready,
    messages.Loaded: _loaded,
    messages.DataProgressed: _data_came,
    messages.Started: _started,
    events.Progressed: _progressed,
    events.AwaitsClient: _awaits_client,
    messages.Meets: _meets,
    messages.CannotGoOn: lost_roles.restart_needed,
    messages.Shared: resizing.shared,
    messages.Ended: _ended,
    messages.Failed: lost_roles.failed,
    messages.Exited: lost_roles.exited,
}
