"""One turn of a run: the next state while it is being written, and the commands that go with it.

Also places all roles again, or finishes the run, when the last process is gone.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from dask_train.run.commands import Command, Finish, Free, Key, PlaceRoles, Tell, Verdict
from dask_train.run.messages import Kill, Message, RoleProcess
from dask_train.run.state import ALIVE, Phase, Role, RolePhase, RunState

_ENDED = (RolePhase.RETURNED, RolePhase.GONE)
# A role that does not wait for the others.
NOT_MEETING: dict[str, Any] = {"meets_at": "", "meets_size": 0, "meets_or": 0}


class StateUpdate:
    """A writable copy of a :class:`~dask_train.run.state.RunState`; its attributes are the state's."""

    def __init__(self, state: RunState, time: float) -> None:
        self._state = state
        self._commands: list[Command] = []
        self.time = time
        self.plan = state.plan
        self.phase, self.since = state.phase, state.since
        self.roles = dict(state.roles)
        self.data_ready = state.data_ready
        self.met, self.met_on = state.met, state.met_on
        self.resize = state.resize
        self.progressed = state.progressed
        self.losses = state.losses
        self.num_restarts, self.num_left = state.num_restarts, state.num_left
        self.suspicion = state.suspicion
        self.diagnosing = state.diagnosing
        self.client_waits = state.client_waits
        self.notes = state.notes
        self.ending = state.ending

    def result(self) -> tuple[RunState, tuple[Command, ...]]:
        """Return the next state, and what is to be done."""
        return RunState(**{field.name: getattr(self, field.name) for field in fields(RunState)}), tuple(self._commands)

    def do(self, command: Command) -> None:
        """Append a command to those that follow from this update."""
        self._commands.append(command)

    def tell(self, key: Key, message: Message) -> None:
        """Append a message to one role process."""
        role = self.roles[key]
        self.do(Tell(to=RoleProcess(*key, role.attempt), address=role.address, message=message))

    def enter(self, phase: Phase) -> None:
        """Move the run to another phase."""
        self.phase, self.since = phase, self.time

    def change(self, key: Key, **changes: Any) -> None:
        """Note something about a role."""
        self.roles[key] = replace(self.roles[key], **changes)

    def move(self, key: Key, phase: RolePhase, **changes: Any) -> None:
        """Move a role to another phase."""
        self.change(key, phase=phase, since=self.time, **changes)

    def place_anew(self, key: Key, attempt: int | None = None) -> None:
        """Let a role wait for room for its next attempt; with the number of this, all start again."""
        alone, attempt = attempt is None, self.roles[key].attempt + 1 if attempt is None else attempt
        # The address for its peers stays until it is ready: TensorFlow starts no server with an empty one of another.
        forgotten: dict[str, Any] = {"address": "", "pid": 0, "awaits_client": False, "fenced": "", **NOT_MEETING}
        self.move(key, RolePhase.PLACING, attempt=attempt, alone=alone, **forgotten)

    def made_progress(self, key: Key) -> None:
        """Note that a role moves."""
        self.change(key, progressed=self.time)
        self.progressed = self.time

    def last_progress(self) -> float:
        """Return the time of the latest progress of a training role, or of any role where none trains any more.

        A scorer may report for ever, so it counts only then.
        """
        alive = {key: role for key, role in self.roles.items() if role.phase in ALIVE}
        training = [role for key, role in alive.items() if key[0] in self.plan.training]
        return max([self.since, *map(self.last_moved, training or alive.values())])

    def last_moved(self, role: Role) -> float:
        """Return when a role last made progress.

        A wait for the client is the client's affair, unless it waits for the run: then there will be no progress.
        """
        if not role.awaits_client:
            return max(role.progressed, role.since)
        return self.time if self.client_waits is None else max(role.progressed, self.client_waits)

    def wait_for_each_other(self) -> bool:
        """Return whether the loss of a training role is an exception in the others."""
        return self.plan.agree or self.met

    def has_data(self, key: Key) -> bool:
        """Return whether a role has all the data that it is to be given."""
        return self.roles[key].loaded or key[0] not in self.plan.with_data

    def kill(self, key: Key) -> None:
        """End a role process, if it has not ended; it is gone when its agent says so."""
        if self.roles[key].phase in ALIVE and self.roles[key].phase is not RolePhase.KILLED:
            self.tell(key, Kill())
            self.move(key, RolePhase.KILLED)

    def forget(self, key: Key) -> None:
        """End a role process before the user's function has been called, or give back the room that it waits for."""
        if self.roles[key].phase is RolePhase.PLACING:
            self.move(key, RolePhase.GONE)
            self.do(Free(roles=(key,)))
        self.kill(key)

    def kill_all(self) -> None:
        """End all role processes, and forget what has only been waiting for room."""
        for key, role in self.roles.items():
            self.kill(key)
            if role.phase is RolePhase.PLACING:
                self.move(key, RolePhase.GONE)

    def kill_returned(self) -> None:
        """End what is left of processes whose functions have returned: those of some frameworks stay, and hold GPUs."""
        for key, role in self.roles.items():
            if role.phase is RolePhase.RETURNED:
                self.tell(key, Kill())

    def note(self, what: str) -> None:
        """Remember something that takes nothing from what the training roles have returned."""
        self.notes = (*self.notes, what)

    def end(self, ending: Finish) -> None:
        """Decide how the run ends; what was decided before holds, and so does what the training roles have returned."""
        if self.phase is Phase.COMPLETING:
            self.note(ending.what)
        elif self.phase not in (Phase.STOPPING, Phase.ENDING):
            self.ending = ending
        self.suspicion = None
        if self.phase is not Phase.ENDING:
            self.enter(Phase.ENDING)
        self.kill_all()

    def finish_when_gone(self) -> None:
        """Finish, or start again, as soon as no process is left."""
        if any(role.phase not in _ENDED for role in self.roles.values()):
            return
        if self.phase is Phase.RESTARTING:
            self._place_again()
        elif self.suspicion is None and self.phase is not Phase.OVER:
            self.do(replace(self.ending or Finish(verdict=Verdict.OK), notes=self.notes))
            self.enter(Phase.OVER)

    def _place_again(self) -> None:
        """Place the whole gang again, for its next attempt."""
        keys = self.plan.role_keys()
        attempt = 1 + max(self.roles[key].attempt for key in keys)  # one for all: a checkpoint tells by it who wrote it
        for key in keys:
            self.place_anew(key, attempt)
        self.met = False
        self.enter(Phase.PLACING)
        self.do(PlaceRoles(roles=keys, timeout_s=self.plan.placement_s))
