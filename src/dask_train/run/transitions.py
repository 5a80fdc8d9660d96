"""The course of a run: ``step(state, event) -> (state, commands)``, without a clock, a thread or a file.

What happens to roles is decided here, except for lost roles (:mod:`dask_train.run.lost_roles`) and deadlines
(:mod:`dask_train.run.deadlines`), and all of them write on a :class:`~dask_train.run.state_update.StateUpdate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.run import deadlines, events, lost_roles, resizing
from dask_train.run.commands import (
    AskToStop,
    Command,
    EnterFunction,
    Finish,
    Free,
    LoadData,
    Meet,
    PlaceRoles,
    StartRole,
    Verdict,
)
from dask_train.run.state import ALIVE, Phase, Role, RolePhase, RunPlan, RunState, name_of
from dask_train.run.state_update import StateUpdate

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
    turn = StateUpdate(state, event.time)
    if isinstance(event, events.RoleEvent) and turn.roles[event.key].attempt != event.attempt:
        return state, ()
    _ACTIONS[type(event)](turn, event)
    turn.finish_when_gone()
    return turn.result()


def _placed(turn: StateUpdate, event: events.Placed) -> None:
    keys = [key for key in turn.roles if "/".join(map(str, key)) in event.places]
    if turn.phase not in (Phase.PLACING, Phase.RUNNING, Phase.COMPLETING, Phase.LAUNCHING):
        turn.do(Free(roles=tuple(keys)))
        return
    keys = [key for key in keys if turn.roles[key].phase is RolePhase.PLACING]
    if turn.phase is Phase.PLACING:
        if len(keys) < len(turn.plan.role_keys()):  # granted to one before all were to start again, taken back since
            return
        turn.enter(Phase.LAUNCHING)
    turn.progressed = event.time
    for key in keys:
        turn.move(key, RolePhase.STARTING, address=event.places["/".join(map(str, key))], loaded=False)
        turn.tell(StartRole, key, counts=resizing.counts_of(turn), joins=key in resizing.joining(turn))
        if turn.data_ready and key[0] in turn.plan.with_data:
            turn.tell(LoadData, key)


def _no_room(turn: StateUpdate, event: events.NoRoom) -> None:
    if not any(role.phase is RolePhase.PLACING for role in turn.roles.values()):  # it is no longer awaited
        return
    if set(event.roles) & set(resizing.joining(turn)):
        resizing.give_up_unless_told(turn, f"{event.wanted} {event.why}")
        if turn.resize is not None and turn.resize.why:
            return
    if turn.phase is Phase.COMPLETING:
        turn.note(f"{turn.losses[-1]} There was no room to replace it: {event.why}")
        for key in [key for key, role in turn.roles.items() if role.phase is RolePhase.PLACING]:
            turn.forget(key)
    elif turn.num_restarts:
        turn.end(
            Finish(
                verdict=Verdict.ROLE_LOST,
                what=f"{turn.losses[-1]} There is no room to replace it: {event.why}",
                cause=lost_roles.earlier(turn.losses[:-1]),
                change=event.change,
            )
        )
    else:
        turn.end(Finish(verdict=Verdict.PLACEMENT, what=event.wanted, cause=event.why, change=event.change))


def _ready(turn: StateUpdate, event: events.RoleReady) -> None:
    if turn.roles[event.key].phase is RolePhase.STARTING:
        turn.move(event.key, RolePhase.READY, peer=event.peer, pid=event.pid)
        turn.progressed = event.time
        _let_go(turn)


def _loaded(turn: StateUpdate, event: events.DataLoaded) -> None:
    turn.change(event.key, loaded=True)
    turn.progressed = event.time
    _let_go(turn)


def _data_progressed(turn: StateUpdate, event: events.PartitionComputed) -> None:
    turn.progressed = event.time


def _data_ready(turn: StateUpdate, event: events.DataReady) -> None:
    turn.data_ready = True
    turn.progressed = event.time
    for key, role in turn.roles.items():
        if role.phase in (RolePhase.STARTING, RolePhase.READY) and key[0] in turn.plan.with_data:
            turn.tell(LoadData, key)


def _let_go(turn: StateUpdate) -> None:
    """Start the functions of all roles together when a gang is launched; of a replacement, as soon as it is ready."""
    waiting = [key for key, role in turn.roles.items() if role.phase is RolePhase.READY and turn.has_data(key)]
    if turn.phase is Phase.LAUNCHING:
        if len(waiting) < len(turn.plan.role_keys()):
            return
        turn.enter(Phase.RUNNING)
    if turn.phase in (Phase.RUNNING, Phase.COMPLETING):
        for key in waiting:
            turn.move(key, RolePhase.MEETING)
            turn.tell(EnterFunction, key)
            if turn.phase is Phase.COMPLETING:  # the others have been asked already
                turn.tell(AskToStop, key, reason=_RETURNED)


def _started(turn: StateUpdate, event: events.RoleStarted) -> None:
    if turn.roles[event.key].phase is RolePhase.MEETING:
        turn.move(event.key, RolePhase.RUNNING)
        turn.made_progress(event.key)
        resizing.tell_again(turn, event.key)


def _progressed(turn: StateUpdate, event: events.Progressed) -> None:
    turn.made_progress(event.key)


def _awaits_client(turn: StateUpdate, event: events.AwaitsClient) -> None:
    turn.change(event.key, awaits_client=event.awaits)


def _client_waits(turn: StateUpdate, event: events.ClientWaits) -> None:
    turn.client_waits = event.time if event.waits else None


def _meets(turn: StateUpdate, event: events.RoleMeets) -> None:
    turn.change(event.key, meets_at=event.address, meets_size=event.size)
    resizing.wait(turn)
    _let_meet(turn)


def _let_meet(turn: StateUpdate) -> None:
    """Tell training roles that wait for each other where all are, once all do; or that one has returned."""
    other_number = resizing.meeting(turn)
    members = other_number or turn.plan.training_keys()
    waiting = {key: turn.roles[key].meets_at for key in members if turn.roles[key].meets_at}
    ended = [key for key in members if turn.roles[key].phase is RolePhase.RETURNED]
    returned = next((key for key in ended if not resizing.is_to_leave(turn, key)), None)
    answer: dict[str, Any]
    if returned is not None:
        answer = {"error": f"{name_of(returned)} has returned, and takes part in no collective call any more"}
    elif len(waiting) == len(members) and (other_number or resizing.waits_as_before(turn)):
        answer = {"addresses": tuple(waiting.values())}
        hosts = {address.rpartition(":")[0] for address in waiting.values()}
        turn.met, turn.on_one_host, turn.met_on = True, len(hosts) == 1, min(hosts)
        if turn.plan.in_place:
            answer["attempts"] = tuple(turn.roles[key].attempt for key in members)
    else:
        return
    for key in waiting:
        turn.tell(Meet, key, **answer)
        turn.change(key, meets_at="", meets_size=0)
    if other_number:
        resizing.done(turn)


def _ended(turn: StateUpdate, event: events.RoleEnded) -> None:
    if turn.roles[event.key].phase in (RolePhase.GONE, RolePhase.RETURNED):
        return
    turn.move(event.key, RolePhase.RETURNED)
    turn.made_progress(event.key)
    if event.key in turn.plan.training_keys() and not resizing.is_to_leave(turn, event.key):
        resizing.end(turn)
    _let_meet(turn)
    training = [turn.roles[key].phase for key in turn.plan.training_keys()]
    if turn.phase is Phase.RUNNING and all(phase is RolePhase.RETURNED for phase in training):
        turn.enter(Phase.COMPLETING)
        for key, role in turn.roles.items():
            if role.phase in (RolePhase.MEETING, RolePhase.RUNNING):
                turn.tell(AskToStop, key, reason=_RETURNED)
            elif key[0] in turn.plan.services:  # one that is being replaced has no role to serve
                turn.forget(key)


def _stop_asked(turn: StateUpdate, event: events.StopAsked) -> None:
    if turn.phase in (Phase.STOPPING, Phase.ENDING):
        return
    resizing.give_up_unless_told(turn, f"the run stops: {event.reason}")
    turn.enter(Phase.STOPPING)
    turn.suspicion = None
    turn.ending = Finish(verdict=Verdict.OK, what=event.reason)
    for key, role in turn.roles.items():
        if role.phase in (RolePhase.MEETING, RolePhase.RUNNING):
            turn.tell(AskToStop, key, reason=event.reason)
        else:
            turn.forget(key)


def _data_failed(turn: StateUpdate, event: events.DataLost) -> None:
    turn.end(Finish(verdict=Verdict.DATA, what=event.error))


def _driver_failed(turn: StateUpdate, event: events.DriverFailed) -> None:
    turn.end(Finish(verdict=Verdict.DRIVER, what=event.error))


def _diagnosed(turn: StateUpdate, event: events.Diagnosed) -> None:
    if not turn.diagnosing:
        return
    turn.diagnosing = False
    if turn.phase is Phase.COMPLETING:
        _end_the_late(turn, event)
    if turn.phase is not Phase.RUNNING:
        return  # it goes down, or starts again, meanwhile
    has_raised = turn.suspicion is not None and turn.suspicion.unanswered
    others_move = not has_raised and event.time - turn.last_progress() < turn.plan.progress_s
    blamed = deadlines.roles_that_hang(turn) if others_move else list(turn.roles)
    silent = [key for key in event.silent if key in blamed and turn.roles[key].phase in ALIVE]
    frozen = [key for key in event.frozen if key in blamed and turn.roles[key].phase in ALIVE]
    stopped = [key for key in event.stopped if turn.roles[key].phase in ALIVE]
    if not has_raised and deadlines.wait_in_place(turn) and lost_roles.can_continue_without(turn, stopped):
        lost_roles.fence(turn, stopped)
    elif silent:
        lost_roles.cut_off(turn, silent)
    elif frozen and (lost_roles.can_be_replaced(turn, frozen) or lost_roles.can_start_again(turn, frozen, stopped)):
        lost_roles.give_up_frozen(turn, frozen, alone=others_move)
    elif frozen:  # also if another role has raised, which was waiting for it
        who = ", ".join(map(name_of, frozen)) if others_move else "No role"
        _stall(turn, event, f"{who} made {'no ' if others_move else ''}progress")
    elif has_raised:
        lost_roles.resolve_suspicion(turn, at_once=True)
    elif not others_move:  # else something moved while the picture was taken, or what hangs answers, and works
        _stall(turn, event, "No role made progress")


def _stall(turn: StateUpdate, event: events.Diagnosed, what: str) -> None:
    named = "; ".join(event.stalled) or "all of them answer"
    turn.end(
        Finish(
            verdict=Verdict.STALLED,
            what=f"{what} for {turn.plan.progress_s:g} s: {named}.",
            cause="Who waits for whom is in the stacks below.",
            change="Mend what hangs. Batches, reports, messages and checkpoints are progress; to wait and to call "
            "should_stop() is none. Where a role works for longer without any, call session.report() now and "
            "then, or raise train.progress.timeout.",
        )
    )


def _end_the_late(turn: StateUpdate, event: events.Diagnosed) -> None:
    """End what still runs although the training roles have returned long ago."""
    keys = deadlines.late(turn)
    if keys:
        names = ", ".join(map(name_of, keys))
        doing = f": {'; '.join(event.stalled)}" if event.stalled else ""
        turn.note(
            f"{names} had not returned {turn.plan.progress_s:g} s after the training roles and "
            f"{'was' if len(keys) == 1 else 'were'} ended{doing}."
        )
    for key in keys:
        turn.forget(key)


_ACTIONS: dict[type[events.Event], Callable[[StateUpdate, Any], None]] = {
    events.Placed: _placed,
    events.NoRoom: _no_room,
    events.RoleReady: _ready,
    events.DataLoaded: _loaded,
    events.PartitionComputed: _data_progressed,
    events.DataReady: _data_ready,
    events.DataLost: _data_failed,
    events.RoleStarted: _started,
    events.Progressed: _progressed,
    events.AwaitsClient: _awaits_client,
    events.ClientWaits: _client_waits,
    events.RoleMeets: _meets,
    events.RoleEnded: _ended,
    events.StopAsked: _stop_asked,
    events.ResizeAsked: resizing.asked,
    events.DriverFailed: _driver_failed,
    events.Diagnosed: _diagnosed,
    events.RoleFailed: lost_roles.failed,
    events.RoleExited: lost_roles.exited,
    events.RestartNeeded: lost_roles.restart_needed,
    events.DaskWorkerLost: lost_roles.worker_lost,
    events.AgentFailed: lost_roles.agent_failed,
    events.Ticked: deadlines.ticked,
}
