"""A session of TensorFlow that outlives a lost connection, as its own ``MonitoredSession`` does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

logger = logging.getLogger("dask_train.demo")

# What fails so often in a row will not come back by itself.
MAX_TRIES = 3


class LastingSession:
    """Runs in one session after another: where a connection was lost under one, another one is opened.

    A connection that breaks is ``UnavailableError``. gRPC may also send a request again by itself, which TensorFlow
    refuses with ``AbortedError`` ("The same RunGraph (Worker) request was received twice"). Either way the variables
    are where they were, in the parameter servers. So, as ``_RecoverableSession`` in
    ``tensorflow/python/training/monitored_session.py``, it closes the session, opens another one, and runs the step
    again, which may then have been done twice; but three times in a row at the most.

    Parameters
    ----------
    opened
        Opens a session, given whether there was one before. The errors above may come from it, too.
    """

    def __init__(self, opened: Callable[[bool], Any]) -> None:
        self._opened = opened
        self._session: Any = None
        self._was_open = self._closed = False

    def __enter__(self) -> Self:
        self._lasting(lambda _: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, fetches: Any, feed: dict[Any, Any] | None = None) -> Any:
        """Run a step, as ``tf.compat.v1.Session.run``."""
        return self._lasting(lambda session: session.run(fetches, feed))

    def close(self) -> None:
        """End, also a step that another thread runs."""
        self._closed = True
        self._drop()

    def _lasting(self, step: Callable[[Any], Any]) -> Any:
        import tensorflow as tf

        tries = 0
        while True:
            try:
                return step(self._open())
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
                tries += 1
                if self._closed or tries == MAX_TRIES:
                    raise
                logger.warning("A session was lost, and another one is opened: %s", error)
                self._drop()

    def _open(self) -> Any:
        if self._session is None and not self._closed:
            self._session = self._opened(self._was_open)
            self._was_open = True
        if self._closed:
            self._drop()
            raise RuntimeError("The session is closed.")
        return self._session

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # that it can't be closed in order is why it is dropped
                session.close()
