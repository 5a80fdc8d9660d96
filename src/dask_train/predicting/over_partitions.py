"""``evaluate`` of any kind of model: one task per partition, what they find joined, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from dask import delayed

from dask_train.cluster.gathered import counting, gathered, gathered_later
from dask_train.cluster.sealed import Sealed
from dask_train.predicting.sent_models import on_dask, until_kept
from dask_train.printing import SafeFile
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.parts_progress import PartsDisplay
from dask_train.report.progress import progress_of

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# The results of this many partitions are joined in one task.
FAN_IN = 16


def joined(join: Callable[[list[Any]], Any], level: list[Any]) -> Any:
    """Return all of them, joined in order, some at a time; of none what ``join`` makes of an empty list."""
    while True:
        level = [join(level[at : at + FAN_IN]) for at in range(0, max(1, len(level)), FAN_IN)]
        if len(level) == 1:
            return level[0]


def as_task(function: Callable[..., Any]) -> Any:
    """Make a function's calls tasks, which travel closed."""
    return delayed(Sealed(function), pure=False)


def _shown(
    client: Client | None,
    total: Any,
    parts: Sequence[Any],
    rows: Sequence[int] | None,
    finish: Callable[[Any], dict[str, float]],
    verbose: Any,
) -> dict[str, float]:
    """Return what comes of all, while it is shown how many partitions are done."""
    began = time.monotonic()
    progress = False if verbose == 2 else progress_of(verbose)
    with PartsDisplay(progress, what="evaluating", rows=rows) as display:

        def show(done: Collection[int]) -> None:
            display.done(done, len(parts))

        if client is None:
            with counting([part.key for part in parts], show):
                scores = finish(total.compute(scheduler="threads"))
        else:
            scores = finish(gathered(client, total, parts=parts, watch=show if display.shown else None))
    if verbose == 2:
        metrics = [f"{name}: {score_text(value)}" for name, value in scores.items()]
        line = " - ".join([f"{len(parts)} partitions", seconds_text(time.monotonic() - began), *metrics])
        SafeFile().write(f"{line}\n")
    return scores


async def _shown_later(client: Client, sent: Any, lazy: Callable[[Any], Any], finish: Callable[[Any], Any]) -> Any:
    """Return the same with an asynchronous client, whose caller is shown nothing; the model is on its way there."""
    total, _ = lazy(await sent)
    return finish(await gathered_later(client, total))


def evaluated(
    client: Client | None,
    value: Any,
    lazy: Callable[[Any], tuple[Any, Sequence[Any]]],
    lengths: Sequence[int] | None,
    finish: Callable[[Any], dict[str, float]],
    verbose: Any,
) -> dict[str, float]:
    """Return the scores of a model; an awaitable of them with an asynchronous client.

    Parameters
    ----------
    client
        Whose Dask workers evaluate; None for the threads of this process.
    value
        The model, as tasks get it.
    lazy
        Return what comes of all partitions, and of each, delayed, for the model as it was sent.
    lengths
        Rows of each partition, where they are known.
    finish
        Makes scores of what comes of all.
    verbose
        As :func:`~dask_train.evaluate` takes it.
    """
    if client is not None and client.asynchronous:
        later: Any = _shown_later(client, on_dask(client, value), lazy, finish)  # as Dask's own verbs give then
        return cast(dict[str, float], later)

    def now() -> dict[str, float]:
        model = value if client is None else on_dask(client, value)
        return _shown(client, *lazy(model), lengths, finish, verbose)

    return cast(dict[str, float], until_kept(now))


def some(scores: dict[str, Any] | None) -> dict[str, Any]:
    """Return the scores; a ValueError if there are no rows."""
    if scores is None:
        raise ValueError("There are no rows to evaluate on.")
    return scores
