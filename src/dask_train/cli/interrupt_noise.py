"""Keeps what distributed logs about a Ctrl-C, in calls that it cuts short, off the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# Seen with distributed 2026.8.0: `utils.sync` cancels a future that is not there yet (NameError, in tornado's log), and
# `Client._gather` leaves the exception of a cancelled task unread (AllExit, in asyncio's).
_NOISE = {"tornado.application": "NameError", "asyncio": "AllExit"}


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ != _NOISE[record.name]


@contextmanager
def without_interrupt_noise() -> Iterator[None]:
    """Drop just these records while it lasts; the interrupt itself is the caller's."""
    for name in _NOISE:
        logging.getLogger(name).addFilter(_is_news)
    try:
        yield
    finally:
        for name in _NOISE:
            logging.getLogger(name).removeFilter(_is_news)
