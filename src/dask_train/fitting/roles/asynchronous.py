"""Workers that train one model through parameter servers, each at its own pace."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import numpy as np
from keras.src.utils.python_utils import pythonify_logs

from dask_train.data.account import BatchRange
from dask_train.errors import StalledError
from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.roles.applying import at_every_apply
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.by_row import loss_of_rows_together
from dask_train.fitting.roles.callbacks import CallbackSync
from dask_train.fitting.roles.control import Flags
from dask_train.fitting.roles.lone_worker import LoneWorker, follow
from dask_train.fitting.roles.metrics import Metrics, Told
from dask_train.fitting.roles.pushing import Pushing
from dask_train.fitting.roles.sent_callbacks import states_of
from dask_train.fitting.roles.servers import servers_of
from dask_train.fitting.roles.weights import WatchedWeights, others_of, seeds_of_rank, value_of
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models import state
from dask_train.keras_models.global_batch import refused
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.trainers.common.loop import REPORT_INTERVAL_S
from dask_train.trainers.common.outcome import Outcome, Read
from dask_train.trainers.common.score_names import scores_of

# How often the first worker, which has no rows left and waits for the others to end, looks whether it is to stop.
_LOOK_S = 0.25
# How long it waits for the last steps of others in a run that is to stop, which kills all after some seconds.
_LAST_STEPS_S = 2.0
# How long a worker whose server is gone waits to be ended, too; that is told in milliseconds.
_END_S = 20.0


def fit_asynchronously(task: FitTask, session: Session) -> Outcome | None:
    """Train; the trained model in the first worker, None in the others."""
    worker = AsynchronousWorker(task, session, backend_of(keras.backend.backend()))
    why = "workers with parameter servers take no steps together. Leave ps= out, or pass workers=1."
    try:
        with at_every_apply(worker.pushing), refused(why if session.size > 1 else None, is_aside):
            return worker.fit()
    except Exception as error:
        failure = worker.pushing.failure or error  # a backend tells what is raised in mid-step in words of its own
        if isinstance(failure, EOFError | ConnectionError):
            time.sleep(_END_S)  # the loss of a server is not this worker's fault: the run ends it, and starts all again
        if failure is error:
            raise
        raise failure from None
    finally:
        worker.servers.close()


class AsynchronousWorker(LoneWorker):
    """A worker that trains with parameter servers, at its own pace.

    Notes
    -----
    A step computes gradients with the weights that the servers gave last, and brings them where an optimizer applies
    them. Then it brings what its rows have added to metrics, so what the servers count is what they have applied.
    """

    moment: _Alone

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        super().__init__(task, session, backend)
        seeds_of_rank(self.model, session.rank)
        self.servers = servers_of(task, self.model, session)
        self.pushing = Pushing(self.model, backend, self.servers, session.rank)
        self.metrics = Metrics(self.model)
        self._assign = backend.assigning(self.model.trainable_variables)
        self._flags = Flags()
        self.moment = _Alone(self, self._flags)
        self._counted: dict[int, list[np.ndarray]] = {}
        self._read: list[Read] = []
        self._began: dict[int, int] = {}  # how many steps each worker had taken when this run began
        self._told: dict[str, Any] = {}
        self._last: Told | None = None  # the last step's

    def begin(self, callbacks: Any) -> None:
        """Bring the weights, as the first worker, perhaps from a checkpoint; a new one goes on where it was."""
        ready, steps, remembered = self.servers.begin(self.session.rank)
        if not ready:
            if not self.leads:
                raise StalledError(f"Worker 0 has brought no weights within {self.task.patience_s:g} s.")
            steps = self._bring(callbacks)
        elif self.leads:
            self.servers.everything()
        self.begin_after(steps)
        if self.leads and self.session.size > 1 and (name := loss_of_rows_together(self.model)):
            self.session.notice(
                f"Loss {name!r} is computed of each worker's own share of a batch: with ps= each worker takes steps of "
                "its own. If it compares rows with each other, train without ps=, where it sees the whole batch."
            )
        if self.leads and remembered is not None:  # this one takes the place of one that was lost
            history, epochs, held = remembered
            callbacks.resume(self.position.batch, follow(history, epochs), self.taking(held))
        self.pushing.note()
        self._begin_step()

    def _bring(self, callbacks: Any) -> int:
        """Give the servers what they begin with; how many steps this worker has taken."""
        num_servers = len(self.servers.shards)
        progress: list[dict[int, tuple[int, int]]] = [{}] * num_servers
        kept = self.keeper.load()
        if kept is not None:
            self.go_on(kept, callbacks)
            self._counted = kept.counted
            progress = [{rank: (steps, 0) for rank, steps in kept.steps_by_rank.items()}] * num_servers
            if len(kept.progress) == num_servers:
                progress = [{rank: (steps, calls) for rank, (steps, calls) in each.items()} for each in kept.progress]
            self._read = [read for read in kept.read if read[0] != self.task.run]
            self._began = {rank: _batches_of(rank, self._read) for rank in kept.steps_by_rank}
        self.servers.bring(progress, self._counted)
        if kept is not None:
            self.servers.give(others_of(self.model))
        return min(each.get(0, (0, 0))[0] for each in progress)

    def epoch_told(self, logs: dict[str, Any]) -> None:
        """Let a server remember what would be lost with this worker."""
        super().epoch_told(logs)
        history = self.model.history
        self.servers.remember((history.history, history.epoch, states_of(self.callbacks, self.variables)))

    def _begin_step(self) -> None:
        at = self.position
        self.pushing.begin_step(at.steps + 1, looks=at.batch + 1 == self.epochs.size(at.epoch))

    def stepped(self, told: Told, *, ends: bool) -> Any:
        """Tell what the step has counted, and take the weights of the moment."""
        epoch, has_rows = self.position.epoch, self.share.weight > 0
        last = self._flags.epoch_ends = self.count_step()
        has_all = has_rows and self.pushing.end_step()
        weights, answer = self.servers.step(
            rank=self.session.rank,
            steps=self.position.steps,
            counted=(epoch, self.metrics.counted()) if has_rows else None,
            statistics=True,  # a scorer, a checkpoint, or an end may come at any time
            weights=not has_all,
        )
        self._take(weights if not has_all else None, answer, ends=ends)
        self._begin_step()
        self.metrics.set(None)
        self._last = told
        if not self.leads or not (last or (ends and self._flags.gather)) or answer["counted"] is None:
            return told.values
        self.metrics.set(answer["counted"])
        logs = {**told.values, **self.metrics.renewed(told)}
        if not last:
            self.metrics.set(None)
        return logs

    def _take(self, weights: list[np.ndarray] | None, told: dict[str, Any], *, ends: bool) -> None:
        """Go on with what servers have told; callbacks that look at the model see it as they hold it."""
        if weights is not None:
            self._assign(weights)
        for (optimizer, _), scale in zip(state.held_optimizers(self.model), told["scales"], strict=True):
            if scale is not None:
                optimizer.dynamic_scale.assign(scale)
        if told["stop"]:
            self.model.stop_training = True
        if not self.leads and self.servers.take_others():
            self.pushing.note()
        flags = self._flags
        if (ends and flags.looks_at_batches) or (flags.epoch_ends and flags.looks_at_epochs):
            self.servers.everything()
        self.moment.ending = []

    def validated(self, told: Told, *, ends: bool, last: bool) -> Any:  # noqa: ARG002 - it counts for itself
        """See :meth:`Worker.validated`."""
        return told.values

    def validation(self) -> Any:
        """Return the first worker's, on all of the data; None where a scorer does it, and in the others."""
        return super().validation() if self.leads else None

    def validation_data(self) -> DataSet:
        """Return all of the validation data, for this worker alone."""
        return self.session.dataset(VALIDATION).whole()

    def keep_all(self) -> None:
        """Take a checkpoint of what the servers hold at this moment."""
        told = self.servers.everything()
        self.keep(
            steps_by_rank=told["steps"],
            progress=told["progress"],
            counted=told["counted"],
            read=[*self._read, (self.task.run, self.session.size, self._taken_by_all(told["steps"]))],
        )

    def _taken_by_all(self, steps: dict[int, int]) -> dict[int, list[BatchRange]]:
        before = self.epochs.first(self.task.initial_epoch)
        return {
            rank: self.epochs.taken(before + self._began.get(rank, 0), before + steps[rank], self.task.batch_size)
            for rank in steps
        }

    def settle(self) -> None:
        """In the first worker, before ``on_train_end``: wait for the others, and end with what the servers hold.

        What a callback has set since the last step stays; then moving averages of weights take their place, as at the
        end of Keras' own ``fit``.
        """
        self.servers.end(0, stop=bool(self.model.stop_training))
        self._wait_for_others()
        self._told = self.servers.everything()
        for variable, value in self.moment.ending:
            variable.assign(value)
        if self.model.optimizer is not None:
            self.model.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _wait_for_others(self) -> None:
        """Until all workers have ended; those that take no step for too long are named."""
        seen: dict[int, int] = {}
        ended: set[int] = set()
        moved, stops_at = time.monotonic(), math.inf
        while time.monotonic() < stops_at:
            ended, steps = self.servers.ended(ended, _LOOK_S)
            missing = [rank for rank in range(self.session.size) if rank not in ended]
            if not missing:
                return
            if steps != seen:
                moved, seen = time.monotonic(), steps
            if self.session.should_stop():
                stops_at = min(stops_at, time.monotonic() + _LAST_STEPS_S)
            elif time.monotonic() - moved > self.task.patience_s:
                raise StalledError(
                    f"Worker 0 has gone through its rows, and waits for worker {', '.join(map(str, missing))}, which "
                    f"has taken no step for {self.task.patience_s:g} s.",
                    "It hangs, or its process was stopped.",
                    "See what it does with run.diagnose(), or raise train.progress.timeout.",
                )

    def outcome(self, callbacks: Any) -> Outcome | None:
        """Return what the servers have counted, and this worker's model as callbacks have left it."""
        if not self.leads:
            self.servers.end(self.session.rank)
            return None
        if self.model.stop_training and not self.session.should_stop():
            self.session.stop(f"a callback stopped training in epoch {callbacks.epoch + 1}")
        told, history = self._told, callbacks._history
        return self.trained(
            self._of_all_workers(history, told["counted"]),
            history.epoch,
            steps=sum(told["steps"].values()),
            read=self._read,
            all_reduce_s=0.0,
            waiting_s=0.0,
            applied=self._taken_by_all(told["steps"]),
        )

    def _of_all_workers(self, history: Any, counted: dict[int, list[np.ndarray]]) -> dict[str, list[Any]]:
        """Return the history with the metrics of all rows of each epoch, as the servers have counted them."""
        found = {name: list(values) for name, values in history.history.items()}
        told = self._last or Told({name: None for name in found if not name.startswith("val_")})
        for place, epoch in enumerate(history.epoch):
            if epoch in counted:
                self.metrics.set(counted[epoch])
                for name, value in self.metrics.renewed(told).items():
                    if name in found and place < len(found[name]):
                        found[name][place] = pythonify_logs({name: value})[name]
        return found


def _batches_of(rank: int, read: list[Read]) -> int:
    """Return how many batches a worker went through in other runs."""
    return sum(stretch.done for _, _, by_rank in read for stretch in by_rank.get(rank, ()))


class _Alone(CallbackSync):
    """A moment of one worker, which agrees with nobody: what the first one's callbacks set goes to the servers.

    Attributes
    ----------
    ending
        What callbacks have set since the last step, with the values: what training ends with if no step follows.
    """

    weights: _Watched

    def __init__(self, worker: AsynchronousWorker, flags: Flags) -> None:
        self.model, self.control, self.weights = worker.model, flags, _Watched(worker.model, flags)
        self._worker = worker
        self._rates = [rate for rate in _rates_of(worker.model) if isinstance(rate, keras.Variable)]
        self._known_rates = [float(value_of(rate)) for rate in self._rates]
        self.ending: list[tuple[Any, np.ndarray]] = []
        self._reported_s = time.monotonic()

    @property
    def report_due(self) -> bool:
        """See :attr:`CallbackSync.report_due`."""
        return time.monotonic() - self._reported_s >= REPORT_INTERVAL_S

    def step_done(self, scores: dict[str, Any], *, new_weights: bool = False, new_rates: bool = True) -> None:
        """See :meth:`CallbackSync.step_done`."""
        if self._worker.leads:
            if scores and self.report_due:
                self._report(scores)
            ends = self.control.epoch_ends
            self.control.keep = not ends and self._worker.keeper.due(self._worker.position.steps, epoch_ends=False)
        self.pass_on(new_weights=new_weights, new_rates=new_rates)

    def epoch_done(self, epoch: int, scores: dict[str, Any], *, new_weights: bool = False) -> None:
        """See :meth:`CallbackSync.epoch_done`."""
        worker = self._worker
        if worker.leads:
            worker.session.report(epoch=epoch, num_steps=worker.epochs.num_steps, **scores_of(scores))
            self._reported_s = time.monotonic()
            self.control.keep = worker.keeper.due(worker.position.steps, epoch_ends=True)
            worker.epoch_told(scores)
        self.pass_on(new_weights=new_weights)

    def _report(self, scores: dict[str, Any]) -> None:
        self._reported_s, at = time.monotonic(), self._worker.position
        epochs = self._worker.epochs
        epoch, batch = (at.epoch, at.batch) if at.batch else (at.epoch - 1, epochs.size(at.epoch - 1))
        step = min(batch, epochs.num_steps)
        self._worker.session.report(epoch=epoch, step=step, num_steps=epochs.num_steps, **scores_of(scores))

    def settle(self) -> None:
        """See :meth:`CallbackSync.settle`."""
        self._worker.settle()

    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """See :meth:`CallbackSync.pass_on`."""
        if self._worker.leads:
            self._give(self.weights.found if new_weights else [], self._changed_rates() if new_rates else [])
        if self._worker.session.should_stop():
            self.control.halt = True
            self.model.stop_training = True
        self.stop_here()
        if self.control.keep:
            self.control.keep = False
            self._worker.keep_all()

    def _changed_rates(self) -> list[Any]:
        known, self._known_rates = self._known_rates, [float(value_of(rate)) for rate in self._rates]
        return [rate for rate, old, new in zip(self._rates, known, self._known_rates, strict=True) if old != new]

    def _give(self, changed: list[Any], rates: list[Any]) -> None:
        if changed or rates:
            self._worker.servers.give([*changed, *rates])
            self._worker.pushing.note()
        if self.model.stop_training and not (self.control.halt or self._worker.session.should_stop()):
            changed, self.ending = self.model.weights, []  # it ends here, whatever others bring by then
        weights = {id(variable) for variable in self.model.weights}
        self.ending += [(variable, value_of(variable)) for variable in changed if id(variable) in weights]


class _Watched(WatchedWeights):
    """What callbacks of the first worker may set: weights, and what optimizers keep.

    Attributes
    ----------
    found
        What they have set, when that was last looked at.

    Notes
    -----
    What is put in place of the weights for a validation, and taken back after it, concerns nobody else.
    """

    def __init__(self, model: Any, flags: Flags) -> None:
        super().__init__(model)
        self._own = [*self._own, *others_of(model), *state.optimizer_variables(model)]
        self._flags, self._is_noted = flags, False
        self.found: list[Any] = []

    def note(self) -> None:
        """See :meth:`WatchedWeights.note`; no copy."""
        if not self._is_noted:
            self._seen = [value_of(variable) for variable in self._own]
        self._is_noted = self._flags.testing

    def changed(self) -> bool:
        """See :meth:`WatchedWeights.changed`; not before the end of a validation."""
        if self._flags.testing:
            return False
        pairs = zip(self._own, self._seen, strict=True)
        unique = {id(one): one for one, seen in pairs if not np.array_equal(value_of(one), seen, equal_nan=True)}
        self.found = list(unique.values())
        return bool(self.found)


def _rates_of(model: Any) -> list[Any]:
    """Return the learning rates of all of its optimizers, and of those that these are made of."""
    outer = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
    return [each._learning_rate for one in outer for each in (one, *getattr(one, "optimizers", ()))]
