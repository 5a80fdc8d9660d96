"""The functions that ``fit`` calls for each batch, in place of Keras' own: they take batches from the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Columns
from dask_train.errors import DataError
from dask_train.fitting.backends import Backend, Derived
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics, StepLogs
from dask_train.fitting.roles.own_metrics import check_sums_in_steps
from dask_train.fitting.roles.rehearsal import Inspection, learn_losses
from dask_train.fitting.roles.shares_trial import compare_shares
from dask_train.fitting.roles.weights import Weights, value_of
from dask_train.role.session import Session


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What the parts of one worker have in common; with no ``weights`` if it waits for no other worker in its steps.

    What metrics count is added to what others count where it ``adds_metrics``. A step ``applies_last`` where all else
    in it comes before gradients are applied.
    """

    session: Session
    backend: Backend
    model: Any
    share: RowFraction
    weights: Weights | None
    metrics: Metrics
    adds_metrics: bool = False
    applies_last: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchFeed:
    """Where steps take their batches, and what they make of them.

    Attributes
    ----------
    batches
        This worker's shares of global batches, as tuples of tensors.
    num_in_call
        How many of them the next call of Keras' takes: ``steps_per_execution``, except for the last ones.
    columns
        What these tensors mean.
    some_row
        Gives a batch of one row of the data, while there are batches.
    class_weight
        As in Keras.
    num_classes
        Targets are class numbers below it; None if they are not.
    is_taken
        Returns whether the next step was taken already, by a lost worker whose place this one takes. Default: false.
    """

    batches: Iterator[Any]
    num_in_call: Callable[[], int]
    columns: Columns
    some_row: Callable[[], Any]
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None
    is_taken: Callable[[], bool] = bool


# How often metrics are checked again that count 0 whenever a step is tried, such as those that only each tenth step
# updates: a check takes as long as several steps.
_MOST_VAIN_CHECKS = 10


class Steps:
    """The steps of a worker, one call of Keras' after the other; what its ``train_function`` or ``test_function`` is.

    Parameters
    ----------
    rank
        Whose.
    feed
        Batches.
    step
        ``model.train_step`` or ``model.test_step``.
    after
        Called with the outcome of each step, and whether the call ``ends`` with it; returns the logs that callbacks
        see.

    Notes
    -----
    Where workers agree in steps, one without rows of a batch goes through the step with some row of the data that
    weighs nothing, so that it takes part in every sum; then its metrics and moving averages are set back. Once steps
    gather rows, only moving averages of Keras' own layers are: others may be made of gathered rows, such as a queue.
    """

    def __init__(self, rank: Rank, feed: BatchFeed, step: Callable[[Any], Any], after: Callable[..., Any]) -> None:
        self._rank, self._feed, self._step, self._after = rank, feed, step, after
        self._floatx = keras.config.floatx()
        self._run: Callable[[Any], Any] | None = None
        self._derived = Derived()
        self._step_logs = StepLogs({})
        self._unchecked: set[int] = set()  # places of metrics' variables that were 0 in all checks so far
        self._num_vain_checks = 0
        self._tried: Callable[[Any], Any] | None = None  # the step of checks after the first, which is compiled once

    def __call__(self, iterator: Any) -> Any:  # noqa: ARG002 - Keras' own iterator, which counts steps only
        """Take the steps of one call; the logs of the last one."""
        logs: Any = None
        for left in reversed(range(self._feed.num_in_call())):
            self._step_logs = self._taken() if self._feed.is_taken() else self._step_on(next(self._feed.batches))
            logs = self._after(self._step_logs, ends=left == 0)
        return logs

    def _taken(self) -> StepLogs:
        """Return the outcome of a step that another worker has taken, whose counts this one's metrics continue."""
        self._rank.metrics.go_on()
        return StepLogs(self._rank.metrics.results())

    def _step_on(self, columns: Sequence[Any]) -> StepLogs:
        rank = self._rank
        rows = int(columns[0].shape[0])
        rank.share.set(rows, rank.session.global_rows)
        return self._stepped(columns) if rows else self._stepped_without_rows()

    def _stepped_without_rows(self) -> StepLogs:
        rank = self._rank
        if rank.weights is None:
            return self._step_logs
        rank.metrics.go_on()  # so that what is carried from a checkpoint is not forgotten
        metrics, statistics, weights = rank.metrics.state(), rank.weights.statistics(), rank.weights

        def set_back() -> None:
            rank.metrics.forget_rows(metrics)
            # What is made of gathered rows is the same on all workers, and has no part of the row in their place.
            weights.set_statistics(statistics, only_of_keras=rank.share.has_gathered)

        rank.share.set_back = set_back  # also for code that looks at them within the step
        step_logs = self._stepped(self._feed.some_row())
        rank.share.set_back = None
        set_back()
        return step_logs

    def _stepped(self, columns: Sequence[Any]) -> StepLogs:
        batch = self._packed(columns)
        self._rank.metrics.go_on()
        if self._run is not None:
            logs = self._run_with_check(self._run, batch) if self._unchecked else self._run(batch)
            return StepLogs.of(logs, self._derived)
        run = self._made(batch)
        if self._rank.applies_last:
            self._rank.metrics.variables()  # which are not to be looked for within the step
        logs = run(batch)  # it makes the metrics' variables
        self._run, self._derived = run, self._rank.backend.derived(run, self._rank.metrics.variables())
        return StepLogs.of(logs, self._derived)

    def _run_with_check(self, run: Callable[[Any], Any], batch: Any) -> Any:
        """Take a step, and check metrics again if it has changed a variable that no check has seen count."""
        before = self._counted_unchecked()
        logs = run(batch)
        if not all(map(np.array_equal, before, self._counted_unchecked())):
            shown = self._unchecked - self._check_sums(partial(self._tried_again, batch), batch)
            self._unchecked -= shown
            self._num_vain_checks += not shown
            if self._num_vain_checks == _MOST_VAIN_CHECKS:
                self._unchecked = set()
        return logs

    def _counted_unchecked(self) -> list[np.ndarray]:
        variables = self._rank.metrics.variables()
        return [np.array(value_of(variables[place])) for place in sorted(self._unchecked)]

    def _tried_again(self, batch: Any) -> Callable[[Any], Any]:
        if self._tried is None:
            self._tried = self._rank.backend.compiled(self._step, self._rank.model, batch)
        return self._tried

    def _check_sums(self, make_step: Callable[[], Callable[[Any], Any]], batch: Any) -> set[int]:
        rank = self._rank
        is_alone = rank.weights is None
        return check_sums_in_steps(rank.model, rank.metrics, rank.backend, make_step, batch, compiled=is_alone)

    def _made(self, batch: Any) -> Callable[[Any], Any]:
        """Return the step, of which is known what has to be before it is taken."""
        backend = self._rank.backend
        if self._rank.adds_metrics:
            first = partial(backend.compiled, self._step, self._rank.model, batch)  # before metrics have variables
            self._unchecked = self._check_sums(first, batch)
        model, is_shared = self._rank.model, self._rank.weights is not None and self._rank.session.size > 1
        inspection = Inspection(model, backend)
        is_compared = is_shared and self._step != model.test_step and self._rank.share.weight > 0
        is_compared = is_compared and inspection.compares
        # Once its graph is made it is known which losses layers add, and with which variables metrics count.
        run = backend.compiled(self._step, model, batch, at_once=self._rank.applies_last or is_compared)
        if is_shared and (why := learn_losses(model, self._rank.metrics, backend, run, batch)) is not None:
            self._notice_untried(why)
        if is_compared and inspection.compares_made:
            self._compare_shares(run, batch)
        return run

    def _compare_shares(self, run: Callable[[Any], Any], batch: Any) -> None:
        """Let a step be refused that several workers can't take together."""
        rank, model = self._rank, self._rank.model
        make = partial(rank.backend.compiled, self._step, model, batch, at_once=True)
        why = compare_shares(model, rank.metrics, rank.backend, rank.share, (run, make), batch)
        if why is not None:
            self._notice_untried(why)

    def _notice_untried(self, why: str) -> None:
        rank, model = self._rank, self._rank.model
        if rank.session.rank == 0:
            rank.session.notice(
                f"Model {model.name!r} computes a loss of its own, and it could not be tried whether "
                f"{rank.session.size} workers compute that of one: {why}. A mean over rows is exact, and so is a sum "
                "that the graph of the step shows. If it is neither, pass it to compile as loss=, gather rows with "
                "dt.keras.global_batch, or pass workers=1."
            )

    def _packed(self, columns: Sequence[Any]) -> Any:
        as_floatx = self._rank.backend.as_floatx
        x, y, sample_weight = self._feed.columns.pack([as_floatx(column, self._floatx) for column in columns])
        if self._feed.num_classes is not None:
            check_class_numbers(y, self._feed.num_classes)
        if self._feed.class_weight is not None:
            sample_weight = keras.ops.convert_to_tensor(weights_of(y, self._feed.class_weight))
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


def check_class_numbers(y: Any, num_classes: int) -> None:
    """Check that labels of a batch are numbers of classes that there are.

    Raises
    ------
    DataError
        They are not.
    """
    labels = np.asarray(keras.ops.convert_to_numpy(y))
    if labels.dtype.kind not in "biuf":
        raise DataError(
            f"A batch has labels that are text, {labels.flat[0]!r} for one, and the loss takes class numbers.",
            change="Make numbers of them, of a frame's column with .astype('category') for instance.",
        )
    low, high = labels.min(), labels.max()
    if low < 0 or high >= num_classes:
        raise DataError(
            f"A batch has labels from {low} to {high}, and the model tells {num_classes} classes apart.",
            change="Number the classes from 0, or give the last layer as many units as there are classes.",
        )


def weights_of(y: Any, by_class: dict[int, float]) -> np.ndarray:
    """Sample weights by class, as Keras' ``class_weight`` means them: classes that it does not name weigh 1.

    Parameters
    ----------
    y
        ``(n,)`` or ``(n, 1)`` of labels, which may be of any number type; or ``(n, classes)``, of which the largest
        counts.

    Returns
    -------
    np.ndarray
        ``(n,)``, of Keras' ``floatx``.
    """
    labels = np.asarray(keras.ops.convert_to_numpy(y))
    if labels.ndim > 1:
        labels = labels.argmax(-1) if labels.shape[-1] != 1 else labels[..., 0]
    if labels.ndim != 1:
        raise DataError(
            f"class_weight is by the class of each row, and rows have targets of shape {tuple(y.shape[1:])}.",
            change="Pass sample_weight, of the shape that the loss has.",
        )
    classes, place = np.unique(np.round(labels).astype(np.int32), return_inverse=True)
    return np.array([by_class.get(int(number), 1.0) for number in classes], keras.config.floatx())[place]
