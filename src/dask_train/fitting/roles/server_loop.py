"""The training loop of a worker with parameter servers, which goes through its batches at its own pace."""

from __future__ import annotations

from typing import Any

from dask_train.data.account import BatchRange
from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.loop import KerasLoop
from dask_train.fitting.roles.servers import Progress, Servers
from dask_train.fitting.roles.weights import others_of
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.fitting.spec import FitTask
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import LeftError, Position

# The part of the state that servers hold besides the model: how many steps each worker has taken, what metrics have
# counted in each epoch, and how many workers share the batches.
SERVERS = "servers"
# How long a worker waits for the first weights, or one that joins for its share of the batches, until it looks whether
# it is to stop.
_LOOK_S = 1.0


class ServerLoop(KerasLoop):
    """The training loop of one worker, whose servers know how far each worker is.

    No worker waits for another at a sync point. When training begins, the first one gives the servers weights and
    progress, and all begin with what servers hold. A checkpoint is what they hold at one moment; the first worker takes
    it.

    Another number of workers shares the batches from a step on that no worker has begun; the first one asks for it.

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
        self._begun_among = session.size  # workers shared the batches when training was begun
        self._told_size = 0  # number of workers that the run knows of, since it has asked for it

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
            The checkpoint was begun with something else, can't be read, or has a share of a worker that is not there.
        LeftError
            This worker has no share of the batches that are left, or the run stops before it has begun.
        """
        state.shared(SERVERS, lambda: self.held, self._take_held)
        ready, steps, remembered = self._known_by_servers()
        if ready:
            self._state = state
            self.start = self.position = self._after(self._first_step(steps))
            if self.leads:  # it takes the place of one that was lost
                self.hold_everything()
                if remembered is not None:
                    self.history, self._reported_epochs, self._read, self._configuration = remembered["loop"]
                    state.course.restore_shared(remembered["course"], within_epoch=True)
        else:
            super().keep(state)
            self._bring()
        self._session._go_on_among(self._servers.counts.at(self.position.steps))
        return self.start

    def _known_by_servers(self) -> tuple[bool, int, Any]:
        """Return what :meth:`Servers.begin` does; workers but the first wait until that one has brought the weights.

        It may be lost before, so the run says how long that may take.
        """
        while not (known := self._servers.begin(self._session.rank, _LOOK_S))[0] and not self.leads:
            if self._session.should_stop():
                raise LeftError
            self._session._link.note("waiting for worker 0 to bring the first weights")
        return known

    def _first_step(self, steps: int) -> int:
        """Return the first step from ``steps`` on that is this worker's; one that joins waits until it has a share."""
        rank = self._session.rank
        while (first := self._servers.counts.next_of(rank, steps)) is None:
            if not self._session._joins or self._session.should_stop():
                raise LeftError
            self._servers.wait_for_counts(_LOOK_S)
            self._servers.begin(rank, 0.0)  # with the weights of the moment
        if first > steps:
            self._servers.skip(rank, first)
        return first

    def rejoin(self) -> bool:
        """Continue with this worker's next share, after steps of which it has none; return whether there is one."""
        counts, rank = self._servers.counts, self._session.rank
        if (first := counts.next_of(rank, self.position.steps)) is None:
            return False
        self._servers.skip(rank, first)
        self.position = self._after(first)
        self._session._go_on_among(counts.at(first))
        self.deal_again()
        return True

    def hold_everything(self) -> None:
        """Let the first worker's model take over what servers hold at this moment."""
        self.held = {**self._servers.everything(), "workers": self._servers.counts.changes}

    def _bring(self) -> None:
        """Give servers the model and the progress of all workers to begin with."""
        progress = self._progress_to_begin_with()
        num_steps = self.held.get("num_steps", 0)
        self._servers.bring(progress, self.held.get("counted", {}), self._counts_to_begin_with(), num_steps)
        if self.held:
            self._servers.give(others_of(self._model))

    def _progress_to_begin_with(self) -> list[Progress]:
        """Return how far workers are, for each server; every server has each call of an optimizer.

        Raises
        ------
        CheckpointError
            The checkpoint is of another number of servers, and not all of them had the same gradients.
        """
        num_servers, progress = len(self._servers.shards), self.held.get("progress", [{}])
        if len(progress) == num_servers:
            return list(progress)
        ranks = sorted(set().union(*progress))
        if apart := [rank for rank in ranks if len({each.get(rank, (0, 0)) for each in progress}) > 1]:
            raise CheckpointError(
                f"The checkpoint was made with {len(progress)} parameter servers when only some of them had the last "
                f"gradients of worker {', '.join(map(str, apart))}, and this run has {num_servers}: some weights would "
                "get them twice or not at all.",
                change=f"Pass ps={len(progress)}.",
            )
        return [progress[0]] * num_servers

    def _counts_to_begin_with(self) -> WorkerCounts:
        """Return how many workers share the batches: as before, and from now on those that there are.

        Raises
        ------
        CheckpointError
            A worker that is not there has batches left that the others have behind them; or the number changes within
            calls that a worker is to make.
        """
        size, steps = self._session.size, self.held.get("steps", {})
        counts = WorkerCounts.of(self.held.get("workers", [(0, self._begun_among)]))
        if counts.last != size:
            # Gradients of a step may be in the weights before the step is reported.
            begun = [done + (calls > 0) for each in self.held.get("progress", ()) for done, calls in each.values()]
            counts = counts.then(self._begins_call(max(begun, default=0)), size)
        gone = [rank for rank in range(size, counts.most) if counts.next_of(rank, steps.get(rank, 0)) is not None]
        if gone:
            raise CheckpointError(
                f"The checkpoint was made with {gone[-1] + 1} workers, and this run has {size}: the rows that worker "
                f"{gone[-1]} had left of batches that others had behind them would be no worker's.",
                change=f"Pass workers={gone[-1] + 1} or more, as with ps= each worker resumes after its own last step.",
            )
        within = [first for first, _ in counts.changes if self._begins_call(first) != first]
        if any(counts.next_of(rank, steps.get(rank, 0)) in range(max(within, default=0)) for rank in range(size)):
            raise CheckpointError(
                f"The number of workers changes at step {within[-1]} of the checkpoint, within an epoch. Workers that "
                f"are not there yet would pass it in a call of steps_per_execution={self._epochs.steps_per_execution}.",
                change="Compile the model with steps_per_execution=1, as in the run that made the checkpoint.",
            )
        return counts

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
        self._begun_among = checkpoint.read[-1][1]
        self._remember({name: checkpoint.shared[name] for name in self._state.course.names["shared"]})

    def _remember(self, course: dict[str, Any]) -> None:
        """Let a server keep what would be lost with the first worker."""
        loop = (self._copied_history(), list(self._reported_epochs), self._read, self._configuration)
        self._servers.remember({"loop": loop, "course": course})

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        super()._report(unit, number, scores, **more)
        if self.leads:
            self._remember(self._state.course.take_shared())

    def _pass_sync_point(self, *, epoch_ends: bool) -> bool:
        if not super()._pass_sync_point(epoch_ends=epoch_ends) and self.position.epoch < self._task.epochs:
            if self.leads:
                self._change_size()
            self._take_share()
        return self.stopped

    def _take_share(self) -> None:
        """Continue with this worker's share of the batches, if another number of workers shares them from here on.

        Raises
        ------
        LeftError
            It has none.
        """
        size, before = self._servers.counts.at(self.position.steps), self._session.size
        self._session._go_on_among(size)
        if self._session.rank >= size:
            raise LeftError
        if size != before:
            self.deal_again()

    def _change_size(self) -> None:
        """Let as many workers share the batches as the run asks for, and report when they do.

        The run may then restart all in that number. So those that leave have taken their last steps by then, also
        those of the last checkpoint.
        """
        size, counts = self._session._link.wanted_size, self._servers.counts
        if size in (0, self._told_size) or (counts.last != size and not self._share_among(size)):
            return
        if (counts := self._servers.counts).shrinks:
            _, steps = self._servers.ended(set(), 0.0)
            if any(counts.next_of(rank, steps.get(rank, 0)) is not None for rank in range(size, counts.most)):
                return
            if self._task.checkpoint is not None:
                self._save()
                self._checkpointer.finish()
        self._told_size = size
        self._session._link.shared_among(size)

    def _share_among(self, size: int) -> bool:
        """Let that many workers share the batches from a step on that none has begun; false if none is left."""
        ahead, reached = 1, self.position.steps
        while (first := self._border_from(reached + ahead)) is not None:
            accepted, reached = self._servers.share(first, size)
            if accepted:
                return True
            ahead *= 2  # others train on meanwhile
        return False

    def _border_from(self, step: int) -> int | None:
        """Return the first step from this one on before which workers may join and leave; None if there is none."""
        step = self._begins_call(step)
        return step if self._begun + step < self._epochs.first(self._task.epochs) else None

    def _begins_call(self, step: int) -> int:
        """Return the first step from this one on with which a call of every worker begins.

        A call of Keras' takes several steps, and a worker that was replaced makes others. All begin with an epoch.
        """
        if self._epochs.steps_per_execution == 1:
            return step
        epoch, batch = self._epochs.place(self._begun + step)
        return self._epochs.first(epoch + (batch > 0)) - self._begun

    def _save(self) -> None:
        if self.leads:
            self.hold_everything()
            super()._save()

    @property
    def _begun(self) -> int:
        """Return the place of the first batch since training was begun."""
        return self._place_of(Position(self._task.initial_epoch))

    def _after(self, steps: int) -> Position:
        """Return where a worker is that has taken that many steps since training was begun."""
        return Position(*self._epochs.place(self._begun + steps), steps)

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """Return what each worker has taken since this run, or its attempt, began, by the servers' last answer."""
        taken_by_rank: dict[int, list[BatchRange]] = {}
        for rank, steps in self.held["steps"].items():
            before = sum(each.done for _, _, by_rank in self._read for each in by_rank.get(rank, ()))
            ranges = taken_by_rank[rank] = []
            for first, stop, size in self._servers.counts.taken(rank, steps):
                known = min(before, stop - first)
                before -= known
                ranges += self._epochs.batch_ranges(self._begun + first + known, self._begun + stop, self._task, size)
        return taken_by_rank
