"""Coroutines that one thread runs on the event loop of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any


def begin(
    loop: asyncio.AbstractEventLoop,
    outcome: Future[Any],
    function: Callable[..., Coroutine[Any, Any, Any]],
    *args: Any,
    **kwargs: Any,
) -> None:
    """Start a coroutine function on an event loop, from any thread.

    The coroutine is made on the loop. ``asyncio.run_coroutine_threadsafe`` takes one that was made here, and a Ctrl-C
    between the two leaves a coroutine that is never awaited, of which Python warns.

    Parameters
    ----------
    loop
        Runs it.
    outcome
        Takes what it returns or raises. Cancelling it cancels the coroutine, or keeps it from being made.
    function
        Called on the loop.
    args, kwargs
        Of the function.

    Raises
    ------
    RuntimeError
        The loop is closed.
    """

    def make() -> None:
        if outcome.cancelled():
            return
        try:
            work = asyncio.ensure_future(function(*args, **kwargs))
        except Exception as error:
            outcome.set_exception(error)
            return
        work.add_done_callback(partial(_hand_over, outcome))
        outcome.add_done_callback(partial(_cancel_too, loop, work))

    loop.call_soon_threadsafe(make)


def _hand_over(outcome: Future[Any], work: asyncio.Future[Any]) -> None:
    if work.cancelled():
        outcome.cancel()
    if not outcome.set_running_or_notify_cancel():
        return
    error = work.exception()
    if error is None:
        outcome.set_result(work.result())
    else:
        outcome.set_exception(error)


def _cancel_too(loop: asyncio.AbstractEventLoop, work: asyncio.Future[Any], outcome: Future[Any]) -> None:
    if outcome.cancelled():
        with suppress(RuntimeError):  # the loop is closed, and the work has ended with it
            loop.call_soon_threadsafe(work.cancel)
