"""The training loop of a rank, whatever is trained: the batches of its epochs, between which it is kept in step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from dask_train.collectives.formation import State
from dask_train.data.account import BatchRange
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.comparing import check_same
from dask_train.trainers.common.epochs import Epochs, Turns
from dask_train.trainers.common.score_names import scores_of
from dask_train.trainers.common.sync_point import LeftError, Position, SyncedLoop, mode_unknown
from dask_train.trainers.common.task import LoopTask

# How often scores are reported between the ends of epochs.
REPORT_INTERVAL_S = 0.5


class TrainingLoop(SyncedLoop):
    """The training loop of one rank: its batches from where training begins, and the sync point after each step.

    All ranks make the same calls. At a sync point the first rank reports scores, decides whether a checkpoint is due
    and whether the run is to stop, and tells the others in one sum; so all of them save, and end, after the same step.

    Parameters
    ----------
    task
        How long to train, on which batches, and when to keep a checkpoint.
    session, agreement, check, mode_of
        As of :class:`~dask_train.trainers.common.sync_point.SyncedLoop`.
    steps_per_execution
        How many steps a framework takes in one call, as in Keras. Default: 1.

    Attributes
    ----------
    position
        Where training is.
    start
        Where it has begun: after the checkpoint, if there was one to resume from.
    stopped
        Whether training is to end before its last epoch.
    history
        By name, a list of one score an epoch; in the first rank.
    """

    def __init__(
        self,
        task: LoopTask,
        session: Session,
        agreement: Agreement,
        *,
        check: Callable[[dict[str, Any], dict[str, Any]], None] = check_same,
        mode_of: Callable[[Any, str], str] = mode_unknown,
        steps_per_execution: int = 1,
    ) -> None:
        self._epochs = Epochs.of(task, session.num_rows, steps_per_execution)
        super().__init__(task, session, agreement, self._epochs, check=check, mode_of=mode_of)
        self._turns: Iterator[Any] = iter(())
        self._before_resize: Callable[[], Any] = tuple
        self._after_resize: Callable[[], Any] = tuple
        self._sizes: list[tuple[int, int]] = []  # since the beginning: number of ranks, and their first batch
        self._is_told = False
        self._reported_s = time.monotonic()

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return self._epochs.num_steps

    @property
    def ends_epoch(self) -> bool:
        """Whether the step that was taken last is the last one of its epoch."""
        return self.position.batch == self._epochs.size(self.position.epoch)

    @property
    def report_due(self) -> bool:
        """Whether it is time to report scores between two steps; in the first rank. Others need none."""
        return self.leads and time.monotonic() - self._reported_s >= REPORT_INTERVAL_S

    def epochs(self) -> Iterator[int]:
        """Give the number of each epoch that is left; ends early where the run is to stop.

        Every epoch ends with a call of :meth:`epoch_done`.
        """
        with closing(self.turns()):
            while self.position.epoch < self._task.epochs and not self.stopped:
                yield self.position.epoch
                assert self._is_told, "epoch_done() is called after each epoch"
                self._is_told = False

    def turns(self) -> Turns:
        """Return this rank's share of each batch from where training is, to be closed; see :meth:`deal_again`."""
        self._turns = Turns(lambda: self._epochs.batches(self._session, self._task, self._place))
        return self._turns

    def on_resize(self, before: Callable[[], Any], after: Callable[[], Any]) -> None:
        """Have something done at a sync point at which the number of ranks changes.

        Parameters
        ----------
        before
            Called in all ranks: what only those have that leave goes to the others.
        after
            Called in those that stay: what depends on the number of ranks is made anew, batches are dealt again.
        """
        self._before_resize, self._after_resize = before, after

    def batches(self) -> Iterator[Any]:
        """Give this rank's share of each batch that is left of the epoch; ends early where the run is to stop.

        Every batch ends with a call of :meth:`step_done`.
        """
        if self._behind_step:
            self._behind_step = False
            if not self.ends_epoch:
                self._pass_sync_point(epoch_ends=False)
        while not (self.stopped or self.ends_epoch):
            steps = self.position.steps
            yield next(self._turns)
            assert self.position.steps == steps + 1, "step_done() is called once after each batch"

    def step_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after a step; the last one of an epoch is passed with :meth:`epoch_done`.

        Parameters
        ----------
        **scores
            To report; those of the first rank, where :attr:`report_due`.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        self.count_step()
        return False if self.ends_epoch else self.steps_done(**scores)

    def count_step(self) -> None:
        """Count a step, where the framework takes several of them before the next sync point."""
        self._is_joining = False
        self.position = Position(self.position.epoch, self.position.batch + 1, self.position.steps + 1)
        self._at_border()

    def steps_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after steps that were counted, except for the end of an epoch; see :meth:`step_done`."""
        if scores and self.report_due:
            self._reported_s = time.monotonic()
            step = min(self.position.batch, self.num_steps)  # the last call may take more than there are to be
            self._session.report(epoch=self.position.epoch, step=step, num_steps=self.num_steps, **scores_of(scores))
        return self._pass_sync_point(epoch_ends=False)

    def epoch_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after an epoch: history, report, the best score, a checkpoint.

        Where the run has stopped within the epoch the scores are those of some of its rows: the history has them, and
        nothing else is done.

        Parameters
        ----------
        **scores
            Of the epoch; those of the first rank.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        epoch, self._is_told = self.position.epoch, True
        self._note(epoch, scores)
        if self.stopped:
            return True
        self.position = Position(epoch + 1, 0, self.position.steps)
        self._report("epoch", epoch, scores, num_steps=self.num_steps)
        return self._pass_sync_point(epoch_ends=True)

    @property
    def _border(self) -> int:
        return super()._border + max(0, len(self._sizes) - 1)  # each change of the number of ranks has one of its own

    def _alike(self) -> dict[str, Any]:
        return {**super()._alike(), "sizes": list(self._sizes)}

    def _take_place(self, received: State) -> None:
        _, alike = received.shared
        self._sizes = list(alike["sizes"])
        super()._take_place(received)

    def _wants_other_size(self) -> bool:
        if self._agreement.replaceable is None or self.position.epoch >= self._task.epochs:
            return False
        return self._session._link.wanted_size not in (0, self._agreement.size)

    def _resize(self) -> None:
        """Continue with as many ranks as the first one was sent.

        All come to a border of its own, which is mirrored before anyone leaves. There those that join begin.

        Raises
        ------
        LeftError
            This one leaves.
        """
        agreement, group, borders = self._agreement, self._agreement.replaceable, self._borders
        assert group is not None
        assert borders is not None
        size: int = agreement.of_first(self._session._link.wanted_size)
        self._before_resize()
        if not self._sizes:
            self._sizes.append((agreement.size, self._place_of(self.start)))
        self._sizes.append((size, self._place))
        borders.settle(self._border, self._led())
        group.confirm()
        if agreement.rank >= size:
            raise LeftError
        borders.begin(self._border, {**self._alike(), "is_passed": True}, is_proven=borders.is_proven)
        group.meet_others(size)
        self._session._go_on_among(size)
        self._after_resize()
        group.confirm()

    def deal_again(self) -> None:
        """Deal the batches that are left among the ranks that there are now."""
        assert isinstance(self._turns, Turns)
        self._turns.deal_again()

    def _let_go(self) -> None:
        super()._let_go()
        self._turns = iter(())
        self._before_resize = self._after_resize = tuple

    def _warning(self) -> str | None:
        return self._epochs.warning()

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        super()._report(unit, number, scores, **more)
        self._reported_s = time.monotonic()

    @property
    def _place(self) -> int:
        """The number of the next batch, over all epochs."""
        return self._place_of(self.position)

    def _place_of(self, position: Position) -> int:
        return self._epochs.first(position.epoch) + position.batch

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        begun = self._sizes or [(self._agreement.size, self._place_of(self.start))]
        ranges_by_rank: dict[int, list[BatchRange]] = {}
        for (size, first), (_, stop) in itertools.pairwise([*begun, (0, self._place)]):
            taken = self._epochs.taken(first, stop, self._task, size)
            for rank in range(size):
                ranges_by_rank.setdefault(rank, []).extend(taken)
        return ranges_by_rank
