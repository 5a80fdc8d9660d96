"""What waits for the cluster, called in a Dask task: the task's thread is free for others meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from distributed import rejoin, secede
from distributed.worker import thread_state

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def thread_is_free() -> Iterator[None]:
    """Leave the Dask worker's thread pool for as long as a task waits here, as Dask's own ``compute`` does there.

    Without that a verb would wait for what can't begin, where all threads of a cluster are taken by tasks that wait.
    Outside of tasks, and in one that has left the pool already, nothing happens.
    """
    try:
        left = bool(getattr(thread_state, "key", None))
        if left:
            secede()
    except (AttributeError, KeyError):  # not a thread of Dask's own pool; one that has left it, as in worker_client()
        left = False
    try:
        yield
    finally:
        if left:
            rejoin()


def frees_its_thread(verb: Callable[P, R]) -> Callable[P, R]:
    """Make a function that waits for the cluster callable in a Dask task, within :func:`thread_is_free`."""

    @wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with thread_is_free():
            return verb(*args, **kwargs)

    return called


def is_in_task() -> bool:
    """Return whether a Dask task runs in this thread, also one that has left the pool."""
    return getattr(thread_state, "key", None) is not None
