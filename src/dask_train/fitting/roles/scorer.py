"""A scorer: validates the latest weights while training continues, and reports the scores."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import keras

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics, StepLogs
from dask_train.fitting.roles.models import build, built_already
from dask_train.fitting.roles.servers import servers_of
from dask_train.fitting.roles.spool import SpooledWeights
from dask_train.fitting.roles.steps import Rank, Steps
from dask_train.fitting.roles.validation import Validation
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.serialization import parts_to_model
from dask_train.role.session import Session
from dask_train.trainers.common.score_names import score_name, scores_of

# How often it looks whether it is to stop while there are no new weights.
_LOOK_S = 0.25
# How often it reports progress in mid-validation.
_TELL_S = 1.0


def score(task: FitTask, session: Session) -> None:
    """Report ``val_`` metrics of weights and which weights they were, the latest over and over, until the end.

    Raises
    ------
    ValueError
        The rule to stop by, or the best checkpoint, looks at a score of validation that does not exist.
    """
    backend = backend_of(keras.backend.backend())
    model = parts_to_model(task.header, task.arrays)
    data = session.dataset(VALIDATION).whole()
    assert task.validation_columns is not None
    build(model, task.validation_columns.with_rows(data.schema))
    validation = Validation(task, data, operator.index(model.steps_per_execution))
    rank = Rank(
        session=session, backend=backend, model=model, share=RowFraction(), weights=None, metrics=Metrics(model)
    )
    spooled = "ps" not in session.peers
    source: WeightsSource = SpooledWeights(task, model, session) if spooled else ServedWeights(task, model, session)
    after = partial(_unless_stopped, session, model, validation, _NowAndThen(source.moved))
    model.test_function = backend.as_function(Steps(rank, validation.feed, model.test_step, after), model)
    has_looked = False
    try:
        while not session.should_stop():
            if (which := source.next(_LOOK_S)) is None:
                continue
            with built_already(model):
                logs = model.evaluate(backend.counted(validation.num_batches), return_dict=True, verbose=0)
            if session.should_stop():
                return
            logs = {f"val_{name}": value for name, value in logs.items()}
            scores = scores_of(logs)
            if not has_looked and (left := [name for name in logs if score_name(name) not in scores]):
                session.notice(f"The scorer reports single numbers, which {', '.join(left)} is not: it is left out.")
            has_looked = True
            _check_names(task, scores)
            session.report(**which, **scores)
            source.scored(scores)
    except (EOFError, OSError):
        if not _stops_soon(session):
            raise
    finally:
        source.close()


class WeightsSource(Protocol):
    """Where the scorer's model has its weights from."""

    def next(self, wait_s: float) -> dict[str, int] | None:
        """Return an identifier of the weights that the model has now; None if there are no new ones in time."""

    def moved(self) -> None:
        """Report that a step was taken."""

    def scored(self, scores: dict[str, float]) -> None:
        """Report the scores."""

    def close(self) -> None:
        """Hang up."""


class ServedWeights:
    """Weights that parameter servers hold at the moment, identified by their number of steps."""

    def __init__(self, task: FitTask, model: Any, session: Session) -> None:
        self._servers, self._seen = servers_of(task, model, session), -1

    def next(self, wait_s: float) -> dict[str, int] | None:
        """See :meth:`WeightsSource.next`."""
        steps = self._servers.pull(self._seen, wait_s)["steps"]
        if steps in (-1, self._seen):  # -1: the first worker has not brought them yet
            return None
        self._seen = steps
        return {"updates": steps}

    def moved(self) -> None:
        """Do nothing: no other role waits."""

    def scored(self, scores: dict[str, float]) -> None:
        """Do nothing: no other role waits."""

    def close(self) -> None:
        """Hang up."""
        self._servers.close()


class _NowAndThen:
    """Calls a function at most once in :data:`_TELL_S` seconds."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._last_s = function, time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last_s > _TELL_S:
            self._last_s = time.monotonic()
            self._function()


def _check_names(task: FitTask, scores: dict[str, float]) -> None:
    missing = sorted(name for name in task.stop_names if name.startswith("val_") and name not in scores)
    if missing:
        raise ValueError(
            f"stop looks at {', '.join(missing)}, and the scorer has found {', '.join(scores)}. Name one of these."
        )
    best = None if task.checkpoint is None else task.checkpoint.best
    if best is not None and best.startswith("val_") and best not in scores:
        raise ValueError(
            f"The best checkpoint is to be known by {best!r}, and the scorer has found {', '.join(scores)}. Name one "
            "of these in dt.Checkpoint(best=...)."
        )


def _unless_stopped(
    session: Session,
    model: Any,
    validation: Validation,
    moved: Callable[[], None],
    step_logs: StepLogs,
    *,
    ends: bool,  # noqa: ARG001
) -> Any:
    """Return the logs of a step; the last one where the run is to end."""
    validation.took()
    moved()
    model.stop_evaluating = session.should_stop()
    return step_logs.values


def _stops_soon(session: Session) -> bool:
    """Return whether the run ends: its servers may have heard of it earlier."""
    deadline = time.monotonic() + 2.0
    while not session.should_stop() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return session.should_stop()
