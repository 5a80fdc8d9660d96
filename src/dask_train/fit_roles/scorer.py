"""A scorer: validates the latest weights over and over, beside training, and reports what it finds."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import keras

from dask_train.fit_roles.backends import backend_of
from dask_train.fit_roles.gradients import Share
from dask_train.fit_roles.metrics import Metrics
from dask_train.fit_roles.models import build, made
from dask_train.fit_roles.steps import Rank, Steps
from dask_train.fit_roles.task import VALIDATION, FitTask
from dask_train.fit_roles.validation import Validation
from dask_train.session import Session

# How often it looks for new weights where there are none.
_LOOK_S = 0.1


def score(task: FitTask, session: Session) -> None:
    """Report ``val_`` metrics of the weights of the moment, and after how many steps they were that, until the end."""
    backend = backend_of(keras.backend.backend())
    model = made(task.header, task.arrays)
    build(model, task.layout, ())
    validation = Validation(task, session.dataset(VALIDATION).whole())
    rank = Rank(session=session, backend=backend, model=model, share=Share(), weights=None, metrics=Metrics(model))
    model.test_function = Steps(rank, validation.feed, model.test_step, partial(_unless_stopped, session, model))
    servers = task.servers(model, session)
    seen = -1
    try:
        while not session.should_stop():
            told = servers.pull(statistics=True)
            if told["applied"] == seen:
                time.sleep(_LOOK_S)
                continue
            seen = told["applied"]
            logs = model.evaluate(backend.counted(validation.num_batches), return_dict=True, verbose=0)
            if not session.should_stop():
                session.report(steps=seen, **{f"val_{name}": float(value) for name, value in logs.items()})
    except (EOFError, OSError):
        if not _stops_soon(session):
            raise
    finally:
        servers.close()


def _unless_stopped(session: Session, model: Any, logs: Any) -> Any:
    """The logs of a step; the last one where the run is to end."""
    model.stop_evaluating = session.should_stop()
    return logs


def _stops_soon(session: Session) -> bool:
    """Whether the run ends: its servers may have heard of it earlier."""
    deadline = time.monotonic() + 2.0
    while not session.should_stop() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return session.should_stop()
