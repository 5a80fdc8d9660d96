"""The training loop of a rank over batches and epochs, for any kind of model; it keeps the ranks in step."""

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
from dask_train.trainers.common.epochs import BatchStream, Epochs
from dask_train.trainers.common.score_names import scores_of
from dask_train.trainers.common.sync_point import LeftError, Position, SyncedLoop, mode_unknown
from dask_train.trainers.common.task import LoopTask

# Seconds between reports of scores within an epoch.
REPORT_INTERVAL_S = 0.5


class TrainingLoop(SyncedLoop):
    """The training loop of one rank: its share of the batches, with a sync point after each step.

    All ranks make the same calls. At a sync point the first rank reports scores, decides whether a checkpoint is due
    and whether the run is to stop, and tells the others in one all-reduce; so all of them save, and end, after the
    same step.

    Parameters
    ----------
    task
        How long to train, on which batches, and when to keep a checkpoint.
    session, agreement, check, mode_of
        As in :class:`~dask_train.trainers.common.sync_point.SyncedLoop`.
    steps_per_execution
        Number of steps that a framework takes in one call, as in Keras. Default: 1.

    Attributes
    ----------
    position
        Progress of training.
    start
        Position at which this run began: 0, or that of the checkpoint it resumed from.
    stopped
        Whether training is to end before its last epoch.
    history
        Score name -> one score per epoch; in the first rank.
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
        self._batch_stream: Iterator[Any] = iter(())
        self._before_resize: Callable[[], Any] = tuple
        self._after_resize: Callable[[], Any] = tuple
        self._sizes: list[tuple[int, int]] = []  # since the beginning: number of ranks, and their first batch
        self._epoch_is_done = False
        self._reported_s = time.monotonic()

    @property
    def num_steps(self) -> int:
        """Number of steps per epoch."""
        return self._epochs.num_steps

    @property
    def ends_epoch(self) -> bool:
        """Whether the last step was the last one of its epoch."""
        return self.position.batch == self._epochs.size(self.position.epoch)

    @property
    def report_due(self) -> bool:
        """Whether scores are to be reported after this step; always false in ranks but the first."""
        return self.leads and time.monotonic() - self._reported_s >= REPORT_INTERVAL_S

    def epochs(self) -> Iterator[int]:
        """Yield the number of each epoch that is left; end early if the run is to stop.

        The caller ends every epoch with :meth:`epoch_done`.
        """
        with closing(self.open_batches()):
            while self.position.epoch < self._task.epochs and not self.stopped:
                yield self.position.epoch
                assert self._epoch_is_done, "epoch_done() is called after each epoch"
                self._epoch_is_done = False

    def open_batches(self) -> BatchStream:
        """Open this rank's shares of the batches from :attr:`position` on; to be closed. See :meth:`deal_again`."""
        self._batch_stream = BatchStream(lambda: self._epochs.batches(self._session, self._task, self._place))
        return self._batch_stream

    def on_resize(self, before: Callable[[], Any], after: Callable[[], Any]) -> None:
        """Register functions to call at a sync point at which the number of ranks changes.

        Parameters
        ----------
        before
            Called in all ranks, to send state of ranks that leave to the others.
        after
            Called in ranks that stay, to renew state that depends on the number of ranks, and to share batches anew.
        """
        self._before_resize, self._after_resize = before, after

    def batches(self) -> Iterator[Any]:
        """Yield this rank's share of each batch that is left of the epoch; end early if the run is to stop.

        The caller ends every batch with :meth:`step_done`.
        """
        if self._behind_step:
            self._behind_step = False
            if not self.ends_epoch:
                self._pass_sync_point(epoch_ends=False)
        while not (self.stopped or self.ends_epoch):
            steps = self.position.steps
            yield next(self._batch_stream)
            assert self.position.steps == steps + 1, "step_done() is called once after each batch"

    def step_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after a step; the last one of an epoch is passed with :meth:`epoch_done`.

        Parameters
        ----------
        **scores
            Scores to report if :attr:`report_due`; only those of the first rank count.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        self.count_step()
        return False if self.ends_epoch else self.steps_done(**scores)

    def count_step(self) -> None:
        """Count a step without a sync point, for frameworks that take several steps between two sync points."""
        self._is_joining = False
        self.position = Position(self.position.epoch, self.position.batch + 1, self.position.steps + 1)
        self._at_border()

    def steps_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after counted steps, but not at the end of an epoch; see :meth:`step_done`."""
        if scores and self.report_due:
            self._reported_s = time.monotonic()
            step = min(self.position.batch, self.num_steps)  # the last call may take more steps than the epoch has
            self._session.report(epoch=self.position.epoch, step=step, num_steps=self.num_steps, **scores_of(scores))
        return self._pass_sync_point(epoch_ends=False)

    def epoch_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after an epoch: add to the history, report, find the best score, save a checkpoint.

        If the run has stopped within the epoch, the scores are of some of its rows: they are added to the history, and
        nothing else is done.

        Parameters
        ----------
        **scores
            Scores of the epoch; only those of the first rank count.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        epoch, self._epoch_is_done = self.position.epoch, True
        self._note(epoch, scores)
        if self.stopped:
            return True
        self.position = Position(epoch + 1, 0, self.position.steps)
        self._report("epoch", epoch, scores, num_steps=self.num_steps)
        return self._pass_sync_point(epoch_ends=True)

    def mirror_no_more(self, why: str) -> None:
        """Let a loss of this rank be one of all from now on."""
        if self._borders is not None:
            self._session.notice(f"Worker {self._session.rank} can't be replaced in place: {why}")
            self._borders.refuse()

    @property
    def _border(self) -> int:
        return super()._border + max(0, len(self._sizes) - 1)  # each change of the number of ranks has its own border

    def _alike(self) -> dict[str, Any]:
        return {**super()._alike(), "sizes": list(self._sizes)}

    def _take_place(self, received: State) -> None:
        _, alike = received.shared
        self._sizes = list(alike["sizes"])
        super()._take_place(received)

    def _wants_other_size(self) -> bool:
        replaceable = self._agreement.replaceable
        if replaceable is None or self.position.epoch >= self._task.epochs:
            return False
        return self._session._link.wanted_size not in (0, self._agreement.size)

    def _resize(self) -> None:
        """Continue with the number of ranks that the first rank was sent.

        All ranks come to a border of their own, which is mirrored before any rank leaves. Ranks that join begin there.

        Raises
        ------
        LeftError
            This rank leaves.
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
        group.confirm_last(size)
        if agreement.rank >= size:
            raise LeftError
        borders.begin(self._border, {**self._alike(), "is_passed": True}, is_proven=borders.is_proven)
        group.meet_others(size)
        self._session._go_on_among(size)
        self._after_resize()
        group.confirm()

    def deal_again(self) -> None:
        """Share the batches that are left among the current ranks."""
        assert isinstance(self._batch_stream, BatchStream)
        self._batch_stream.deal_again()

    def _let_go(self) -> None:
        super()._let_go()
        self._batch_stream = iter(())
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
            ranges = self._epochs.batch_ranges(first, stop, self._task, size)
            for rank in range(size):
                ranges_by_rank.setdefault(rank, []).extend(ranges)
        return ranges_by_rank
