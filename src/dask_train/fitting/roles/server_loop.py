"""The training loop of a worker with parameter servers, which goes through its batches at its own pace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dask_train.data.account import BatchRange
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError, StalledError
from dask_train.fitting.roles.loop import KerasLoop
from dask_train.fitting.roles.servers import Servers
from dask_train.fitting.roles.weights import others_of
from dask_train.fitting.spec import FitTask
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import Position

# The part of the state that servers hold besides the model: how many steps each worker has taken, and what metrics
# have counted in each epoch.
SERVERS = "servers"


class ServerLoop(KerasLoop):
    """The training loop of one worker, whose servers know how far each worker is.

    No worker waits for another at a sync point. When training begins, the first one gives the servers weights and
    progress, and all begin with what servers hold. A checkpoint is what they hold at one moment; the first worker takes
    it.

    Parameters
    ----------
    servers
        Lines to all of them.

    Attributes
    ----------
    held
        The last answer of servers to a request for everything, as :meth:`Servers.everything` returns it.
    """

    def __init__(
        self, task: FitTask, session: Session, agreement: Agreement, model: Any, data: Columns, servers: Servers
    ) -> None:
        super().__init__(task, session, agreement, model, data)
        self._servers = servers
        self.held: dict[str, Any] = {}

    @property
    def begins_last(self) -> bool:
        """Return whether the next step is the last one of its epoch."""
        epoch, batch = self._epochs.place(self._place)
        return batch + 1 == self._epochs.size(epoch)

    def keep(self, state: RankState) -> Position:
        """Begin with what servers hold; the first worker of all brings it, perhaps of a checkpoint.

        Parameters
        ----------
        state
            As of :meth:`KerasLoop.keep <dask_train.trainers.common.sync_point.SyncedLoop.keep>`, without parts that are
            each worker's own.

        Returns
        -------
        Position
            :attr:`start`: of a worker that takes another's place, after its last step.

        Raises
        ------
        CheckpointError
            The checkpoint was begun with something else, or can't be read.
        StalledError
            The first worker has brought nothing in time.
        """
        state.shared(SERVERS, lambda: self.held, self._take_held)
        ready, steps, remembered = self._servers.begin(self._session.rank)
        if ready:
            self._state = state
            self.start = self.position = self._after(steps)
            if self.leads:  # it takes the place of one that was lost
                self.hold_everything()
                if remembered is not None:
                    self.history, self._reported_epochs, self._read, self._configuration = remembered["loop"]
                    state.course.restore_shared(remembered["course"], within_epoch=True)
        elif self.leads:
            super().keep(state)
            self._bring()
        else:
            raise StalledError(f"Worker 0 has brought no weights within {self._task.collective_timeout_s:g} s.")
        return self.start

    def hold_everything(self) -> None:
        """Let the first worker's model take over what servers hold at this moment."""
        self.held = self._servers.everything()

    def _bring(self) -> None:
        """Give servers the model and the progress of all workers to begin with."""
        num_servers = len(self._servers.shards)
        progress = self.held.get("progress", [{}])
        if len(progress) != num_servers:  # of another number of servers
            progress = [{rank: (steps, 0) for rank, steps in self.held.get("steps", {}).items()}] * num_servers
        self._servers.bring(progress, self.held.get("counted", {}))
        if self.held:
            self._servers.give(others_of(self._model))

    def _take_held(self, state: dict[str, Any]) -> None:
        progress = [{rank: (steps, calls) for rank, (steps, calls) in each.items()} for each in state["progress"]]
        self.held = {**state, "progress": progress}

    def _take_over(self, checkpoint: FitCheckpoint) -> None:
        """See :meth:`KerasLoop._take_over`; servers keep it for a worker that takes the first one's place meanwhile."""
        begun = self._place_of(Position(checkpoint.epoch, checkpoint.batch)) - checkpoint.steps
        if begun != self._place_of(Position(self._task.initial_epoch)):
            first, _ = self._epochs.place(begun)
            raise CheckpointError(
                f"Training was begun with initial_epoch={first}, and this run has {self._task.initial_epoch}: with ps= "
                "each worker resumes after as many steps as it has taken since then.",
                change=f"Pass initial_epoch={first}, or checkpoint= another folder to begin anew.",
            )
        super()._take_over(checkpoint)
        self._remember({name: checkpoint.shared[name] for name in self._state.course.names["shared"]})

    def _remember(self, course: dict[str, Any]) -> None:
        """Let a server keep what would be lost with the first worker."""
        loop = (self._copied_history(), list(self._reported_epochs), self._read, self._configuration)
        self._servers.remember({"loop": loop, "course": course})

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        super()._report(unit, number, scores, **more)
        if self.leads:
            self._remember(self._state.course.take_shared())

    def _save(self) -> None:
        if self.leads:
            self.hold_everything()
            super()._save()

    def _in_parts(self, checkpoint: FitCheckpoint) -> FitCheckpoint:
        in_parts = super()._in_parts(checkpoint)
        if SERVERS in in_parts.shared:
            return in_parts
        servers = {"steps": checkpoint.steps_by_rank, "progress": checkpoint.progress, "counted": checkpoint.counted}
        return replace(
            in_parts, shared={**in_parts.shared, SERVERS: servers}, steps_by_rank={}, progress=[], counted={}
        )

    def _after(self, steps: int) -> Position:
        """Return where a worker is that has taken that many steps since training was begun."""
        begun = self._place_of(Position(self._task.initial_epoch))
        return Position(*self._epochs.place(begun + steps), steps)

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """Return what each worker has taken since this run, or its attempt, began, by the servers' last answer."""
        taken_by_rank, begun = {}, self._place_of(Position(self._task.initial_epoch))
        for rank, steps in self.held["steps"].items():
            before = sum(each.done for _, _, by_rank in self._read for each in by_rank.get(rank, ()))
            taken_by_rank[rank] = self._epochs.batch_ranges(begun + before, begun + steps, self._task)
        return taken_by_rank
