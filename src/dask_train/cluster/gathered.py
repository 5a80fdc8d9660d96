"""Results of Dask that a caller waits for: given up where it waits no longer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from dask.callbacks import Callback
from distributed import CancelledError, Client, KilledWorker, wait

from dask_train.cluster.on_loop import begin
from dask_train.cluster.peer import Peer
from dask_train.cluster.submitted import submitted
from dask_train.errors import PredictionError, in_words

# What Dask raises of values that were lost with the Dask workers that held them, and can't be computed again.
LOST = (CancelledError,)
# The reasons that it gives for that, rather than for a client that has cancelled them, or is closed.
OF_LOSS = ("lost dependencies", "already forgotten")
# How often one looks at what is done.
LOOK_S = 0.25

# Called with the numbers of what is done.
Watch = Callable[[Collection[int]], None]


def gathered(client: Client, lazy: Any, *, parts: Sequence[Any] = (), watch: Watch | None = None) -> Any:
    """Compute and gather; if the wait is interrupted by any exception, cancel the work.

    Parameters
    ----------
    lazy
        What is wanted.
    parts
        What it is made of.
    watch
        Called a few times a second while this waits, with the numbers of the parts that are done.
    """
    if watch is None:
        return _gathered(client, submitted(client, lazy))
    futures = submitted(client, [lazy, *parts])
    try:
        while not futures[0].done():
            watch([number for number, future in enumerate(futures[1:]) if future.done()])
            with suppress(TimeoutError), client.as_current():  # wait() knows only the default client
                wait(futures[0], timeout=LOOK_S)
        watch(range(len(parts)))
        return client.gather(futures[0])
    except BaseException as error:
        _release(futures)
        _tell(error)
        raise


def _gathered(client: Client, futures: Any) -> Any:
    try:
        return client.gather(futures)
    except BaseException as error:
        _release(futures)  # the traceback holds them
        _tell(error)
        raise


@contextmanager
def counting(keys: Sequence[Any], watch: Watch) -> Iterator[None]:
    """Tell which of the tasks of these keys are done, while Dask computes in this process.

    Parameters
    ----------
    keys
        Of the tasks.
    watch
        Called after each of them, with the numbers of those that are done.
    """
    numbers, done = {key: number for number, key in enumerate(keys)}, set[int]()

    def posttask(key: Any, *_: Any) -> None:
        if key in numbers:
            done.add(numbers[key])
            watch(done)

    with Callback(posttask=posttask):
        yield


def watched(peer: Peer, watch: Callable[[], None], function: Callable[..., Any], *args: Any) -> Any:
    """As ``peer.run``, and ``watch`` is called a few times a second meanwhile; a wait that is broken off cancels it."""
    work: Future[Any] = Future()
    try:
        begin(peer.loop.asyncio_loop, work, function, *args)
        while not work.done():
            watch()
            with suppress(TimeoutError):  # also one that what was awaited has raised: it is raised below
                work.result(LOOK_S)
        watch()
        return work.result()
    finally:
        work.cancel()


async def gathered_later(client: Client, lazy: Any) -> Any:
    """Do as :func:`gathered`, for an asynchronous client."""
    futures = submitted(client, lazy)
    try:
        return await client.gather(futures)
    except BaseException as error:
        _release(futures)
        _tell(error)
        raise


def is_lost(error: PredictionError) -> bool:
    """Return whether all Dask workers have left that held what was needed, so that it can be put on others."""
    return getattr(error.__cause__, "reason", "") in OF_LOSS


def _tell(error: BaseException) -> None:
    """Raise an error of ours where Dask reports Dask workers that have left."""
    if isinstance(error, LOST):
        raise PredictionError(
            f"What was computed is lost: {in_words(error)}",
            "The model, or data that can't be computed again, lay on Dask workers that have left.",
            "Call it again; look at the Dask workers' logs for why they left.",
        ) from error
    if isinstance(error, KilledWorker):
        raise PredictionError(
            f"Dask workers died {error.allowed_failures + 1} times while one of their tasks was {error.task!r}; the "
            f"last was {error.last_worker.address}.",
            "A partition that takes more memory than there is, native code that crashes, or a host that was shut down.",
            "Look at the Dask workers' logs; make smaller partitions, or give the Dask workers more memory.",
        ) from error


def _release(futures: Any) -> None:
    for future in futures if isinstance(futures, list | tuple) else [futures]:
        future.release()
        future.held_rows = None  # nor are rows of the client held for it any more
