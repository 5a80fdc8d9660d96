"""Lost roles: a role that raises, a process or a Dask worker that is gone, and what becomes of the run then."""

from __future__ import annotations

from collections.abc import Sequence

from dask_train.run import events, resizing
from dask_train.run.commands import DiagnoseRoles, Finish, Key, PlaceRoles, Verdict
from dask_train.run.messages import CannotGoOn, Exited, Failed, Kill, PeerLost, WorkerLost
from dask_train.run.recovery import Failure
from dask_train.run.state import ALIVE, Phase, RolePhase, Suspicion, name_of
from dask_train.run.state_update import StateUpdate

# A peer's death is an exception in those that agree with it, within 0.1 s (gloo) and often before its loss is reported.
# An agent reports an exit at once, the scheduler of a dead Dask worker within some tens of milliseconds.
SETTLE_S = 1.0
# A role that raises because others have not answered may be the healthy one: all are asked who does not answer, which
# takes some seconds; after this time it counts as its own exception in any case.
LOOK_S = 10.0

# Phases in which no loss is recovered any more.
_GOING_DOWN = (Phase.STOPPING, Phase.ENDING, Phase.RESTARTING)


def failed(turn: StateUpdate, key: Key, message: Failed) -> None:
    """Note that a role has raised. If another role turns out to be lost, this was its echo."""
    if turn.roles[key].phase not in ALIVE:
        return
    _note_after_stop(turn, [key], f"{name_of(key)} raised {message.error}")
    turn.move(key, RolePhase.GONE)
    if turn.phase in _GOING_DOWN or _needed_no_more(turn, [key]):
        return
    cause = f"{name_of(key)} {'could not start:' if message.launching else 'raised'} {message.error}"
    if not resizing.not_missed(turn, [key], cause):
        return
    if key in resizing.joining(turn):  # it has met no others yet, which wait for it, and have trained without it
        _mend(turn, [key], cause, _blame(Verdict.ROLE_FAILED, key, cause), _failure(turn, [key]))
        return
    if message.launching and turn.phase is Phase.LAUNCHING:  # it has met no others yet, so the fault is its own
        turn.end(_blame(Verdict.LAUNCH, key, f"{name_of(key)} could not start: {message.error}"))
    elif turn.suspicion is None:
        completing = turn.phase is Phase.COMPLETING  # all have trained, and none waits for others
        looked_into = message.unanswered and not completing
        settle_s = SETTLE_S if turn.wait_for_each_other() and not completing else 0.0
        turn.suspicion = Suspicion(
            key=key,
            error=message.error,
            launching=message.launching,
            until=turn.time + (LOOK_S if looked_into else settle_s),
            unanswered=looked_into,
        )
        if looked_into:
            look(turn)
        resolve_suspicion(turn)


def look(turn: StateUpdate) -> None:
    """Have the picture of the run collected, unless that is under way."""
    if not turn.diagnosing:
        turn.diagnosing = True
        turn.do(DiagnoseRoles(roles=tuple(key for key, role in turn.roles.items() if role.phase in ALIVE)))


def resolve_suspicion(turn: StateUpdate, *, at_once: bool = False) -> None:
    """No loss was reported: the exception was the role's own."""
    suspicion = turn.suspicion
    if suspicion is None or (turn.time < suspicion.until and not at_once):
        return
    turn.suspicion = None
    raised = _gone(turn)
    cause = cause_of(suspicion)
    verdict = Verdict.LAUNCH if suspicion.launching else Verdict.ROLE_FAILED
    keys = raised or [suspicion.key]
    _mend(turn, keys, cause, _blame(verdict, suspicion.key, cause), _failure(turn, keys, raised=True))


def cause_of(suspicion: Suspicion) -> str:
    """Return what a role has raised, as a sentence."""
    did = "could not start:" if suspicion.launching else "raised"
    return f"{name_of(suspicion.key)} {did} {suspicion.error}"


def _gone(turn: StateUpdate) -> list[Key]:
    """List the roles that the run misses as they have no process any more; others have left it, or never joined."""
    missed = {*turn.plan.role_keys(), *resizing.members(turn)}
    return [key for key, role in turn.roles.items() if role.phase is RolePhase.GONE and key in missed]


def exited(turn: StateUpdate, key: Key, message: Exited) -> None:
    """Note that a process is gone without a last word, unless it was asked to end."""
    if turn.roles[key].phase in ALIVE:
        cause = f"{name_of(key)} is lost: {turn.roles[key].fenced or message.cause}"
        _lose(turn, [key], cause, in_place=True, leaves=message.leaves)


def worker_lost(turn: StateUpdate, message: WorkerLost) -> None:
    """Note that a Dask worker is gone with all role processes on it."""
    keys = [key for key, role in turn.roles.items() if role.address == message.address and role.phase in ALIVE]
    if keys:
        names = ", ".join(map(name_of, keys))
        is_are = "is" if len(keys) == 1 else "are"
        # Its processes die with it. One that has not yet, as where a host is cut off, is in no group that forms anew.
        cause = f"{names} {is_are} lost: the Dask worker {message.address} left the cluster."
        _lose(turn, keys, cause, in_place=not turn.plan.needs_agents)


def agent_failed(turn: StateUpdate, event: events.AgentFailed) -> None:
    """End a run whose agent can't start; one that ends later, or replaces another, is a loss."""
    keys = [key for key, role in turn.roles.items() if role.address == event.address and role.phase in ALIVE]
    if not keys:
        return
    starting = [key for key in keys if turn.roles[key].phase is RolePhase.STARTING]
    if starting and turn.phase is Phase.LAUNCHING and not turn.num_restarts:
        for key in keys:
            turn.move(key, RolePhase.GONE)
        turn.end(_blame(Verdict.LAUNCH, starting[0], f"No role can start on {event.address}: {event.error}"))
    else:
        names = ", ".join(map(name_of, keys))
        _lose(turn, keys, f"{names}: the agent on {event.address} has ended: {event.error}")


def cut_off(turn: StateUpdate, keys: Sequence[Key]) -> None:
    """Count roles as lost whose agents do not answer, and with them one that has raised because of that."""
    where = ", ".join(f"{name_of(key)} on {turn.roles[key].address}" for key in keys)
    cause = f"{where} {'is' if len(keys) == 1 else 'are'} lost: the agent there does not answer. Its Dask worker "
    cause += "hangs, or its host is cut off."
    _lose_with_echoes(turn, keys, cause)


def can_be_replaced(turn: StateUpdate, keys: Sequence[Key]) -> bool:
    """Return whether the run recovers from the loss of these roles by replacing them alone."""
    return turn.plan.recovery is not None and turn.plan.recovery.decide(_failure(turn, keys)) == "role"


def can_start_again(turn: StateUpdate, keys: Sequence[Key], stopped: Sequence[Key]) -> bool:
    """Return whether the run recovers from the loss of these roles, all of which are stopped, by starting all again.

    What is only busy or hangs would do so again.
    """
    recovery = turn.plan.recovery
    return recovery is not None and set(keys) <= set(stopped) and recovery.decide(_failure(turn, keys)) == "gang"


def can_continue_without(turn: StateUpdate, keys: Sequence[Key]) -> bool:
    """Return whether the other workers can continue in place if these are lost; there are some."""
    recovery = turn.plan.recovery
    return bool(keys) and recovery is not None and recovery.decide(_failure(turn, keys, in_place=True)) == "in_place"


def fence(turn: StateUpdate, keys: Sequence[Key]) -> None:
    """End stopped processes. They are lost when their agents say that they are gone, and write nothing any more."""
    idle_s = turn.time - turn.last_progress()
    for key in keys:
        why = f"its process was stopped by a signal, and no role had made progress for {idle_s:.3g} s. It was ended."
        turn.change(key, fenced=why)
        turn.tell(key, Kill())


def give_up_frozen(turn: StateUpdate, keys: Sequence[Key], *, alone: bool = False) -> None:
    """Count roles as lost whose processes do not answer, while no role makes progress, or they ``alone`` make none."""
    names = ", ".join(map(name_of, keys))
    who = ("it has" if len(keys) == 1 else "they have") if alone else "no role has"
    waited = f"for {turn.plan.progress_s:g} s {who} made {'no progress, while others have' if alone else 'progress'}"
    its = "its process does" if len(keys) == 1 else "their processes do"
    _lose_with_echoes(turn, keys, f"{names} {'is' if len(keys) == 1 else 'are'} lost: {its} not answer, and {waited}.")


def _lose_with_echoes(turn: StateUpdate, keys: Sequence[Key], cause: str) -> None:
    """Lose roles, and with them one that has raised because they have not answered it."""
    for key in keys:
        turn.kill(key)
    raised: list[Key] = []
    if turn.suspicion is not None and turn.suspicion.unanswered:
        turn.suspicion = None
        raised = _gone(turn)
    _lose(turn, [*keys, *raised], cause)


def give_up(turn: StateUpdate, key: Key, cause: str) -> None:
    """Count a role that hangs as lost, its process with it."""
    turn.kill(key)
    _lose(turn, [key], f"{name_of(key)} is lost: {cause}")


def _lose(turn: StateUpdate, keys: Sequence[Key], cause: str, *, in_place: bool = False, leaves: bool = False) -> None:
    ends_in_order = turn.phase in _GOING_DOWN or _needed_no_more(turn, keys)
    _note_after_stop(turn, keys, cause)
    for key in keys:
        turn.move(key, RolePhase.GONE)
    if ends_in_order or not (keys := resizing.not_missed(turn, keys, cause)):
        return
    failure = _failure(turn, keys, in_place=in_place, leaves=leaves)
    _mend(turn, keys, cause, _blame(Verdict.ROLE_LOST, keys[0], cause), failure)


def _note_after_stop(turn: StateUpdate, keys: Sequence[Key], cause: str) -> None:
    """Note roles that were asked to stop, and return nothing; services never do."""
    asked = (RolePhase.MEETING, RolePhase.RUNNING)
    if turn.phase is Phase.STOPPING and any(
        turn.roles[key].phase in asked and key[0] not in turn.plan.services for key in keys
    ):
        turn.note(f"After the run was stopped: {cause}")


def _mend(turn: StateUpdate, keys: Sequence[Key], cause: str, ending: Finish, failure: Failure) -> None:
    """Replace what was lost, start all again, or end the run; when all have trained, only note it."""
    if turn.phase is Phase.COMPLETING:
        turn.note(cause)
        return
    decision = "end" if turn.plan.recovery is None else turn.plan.recovery.decide(failure)
    if decision == "end":
        turn.end(_with_earlier(ending, turn))
        turn.losses = (*turn.losses, cause)
        return
    turn.losses = (*turn.losses, cause)
    turn.num_restarts += 1
    turn.num_left += not failure.counts
    if decision == "in_place":
        _tell_of_loss(turn, keys)
    if decision in ("role", "in_place"):
        for key in keys:
            turn.place_anew(key)
        turn.do(PlaceRoles(roles=tuple(keys), timeout_s=turn.plan.placement_s))
    else:
        turn.suspicion = None
        resizing.end_or_complete(turn, f"all workers start again, as many as there were: {cause}")
        turn.enter(Phase.RESTARTING)
        turn.kill_all()
        turn.kill_returned()


def _tell_of_loss(turn: StateUpdate, keys: Sequence[Key]) -> None:
    """Tell the survivors that those they wait for are lost, and that they will meet their successors."""
    members = resizing.members(turn)
    for key in members:
        if key not in keys and turn.roles[key].phase in (RolePhase.MEETING, RolePhase.RUNNING):
            for lost in keys:
                turn.tell(key, PeerLost(peer=members.index(lost), lost_attempt=turn.roles[lost].attempt))


def restart_needed(turn: StateUpdate, key: Key, message: CannotGoOn) -> None:
    """Start all again, since a role can't continue after another one was replaced in place."""
    if turn.phase in _GOING_DOWN or turn.roles[key].phase not in ALIVE:
        return
    if key not in resizing.members(turn):
        return
    cause = f"{name_of(key)} could not continue in place: {message.why}."
    _mend(turn, [key], cause, _blame(Verdict.ROLE_LOST, key, cause), _failure(turn, [key]))


def _failure(
    turn: StateUpdate, keys: Sequence[Key], *, raised: bool = False, in_place: bool = False, leaves: bool = False
) -> Failure:
    replaceable = all(key[0] in turn.plan.replaceable and not _agrees(turn, key) for key in keys)
    return Failure(
        role=keys[0][0],
        raised=raised,
        replaceable=replaceable,
        num_restarts=turn.num_restarts - turn.num_left,
        in_place=in_place and _others_can_go_on(turn, keys),
        counts=not leaves,
    )


def _others_can_go_on(turn: StateUpdate, keys: Sequence[Key]) -> bool:
    """Return whether the other training roles can continue in place: they have met, and none has returned."""
    if not (turn.plan.in_place and turn.met and turn.suspicion is None):
        return False
    members = resizing.members(turn)
    others = [turn.roles[key].phase for key in members if key not in keys and not resizing.has_left(turn, key)]
    ended = (RolePhase.RETURNED, RolePhase.KILLED, RolePhase.GONE)
    return set(keys) <= set(members) and RolePhase.RUNNING in others and not any(each in ended for each in others)


def _needed_no_more(turn: StateUpdate, keys: Sequence[Key]) -> bool:
    """Return whether they only served roles that have returned, or were ended after these."""
    killed = {key for key in keys if turn.roles[key].phase is RolePhase.KILLED}
    return turn.phase is Phase.COMPLETING and all(key[0] in turn.plan.services or key in killed for key in keys)


def _agrees(turn: StateUpdate, key: Key) -> bool:
    """Return whether its loss is an exception in others, so that replacing it alone mends nothing."""
    return turn.wait_for_each_other() and key[0] in turn.plan.training


def _blame(verdict: Verdict, key: Key, what: str) -> Finish:
    return Finish(verdict=verdict, what=what, role=key[0], rank=key[1])


def _with_earlier(ending: Finish, turn: StateUpdate) -> Finish:
    if ending.verdict is Verdict.ROLE_FAILED:
        change = ""
    elif turn.plan.recovery is None:
        change = "Look at the output of that role; pass recovery= to continue after a loss."
    else:
        change = (
            "Look at the output of that role; raise max_restarts of a dask_train.RecoveryPolicy to allow more restarts."
        )
    num = turn.num_restarts
    cause = f"The run had been mended {num} times before. {earlier(turn.losses)}" if num else ""
    return Finish(
        verdict=ending.verdict, what=ending.what, cause=cause, change=change, role=ending.role, rank=ending.rank
    )


def earlier(losses: Sequence[str]) -> str:
    """Return the causes of the attempts before, as a sentence; empty if there were none."""
    return " ".join(f"Attempt {number}: {cause}" for number, cause in enumerate(losses))
