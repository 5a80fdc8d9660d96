"""Gathers rows of all workers in custom steps, layers and losses, by the function that a trainer sets. No Keras import.

A torch loss could call it, too, and would get the rows of its own worker; so loops of torch modules make it raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Given tensors of this worker's rows, returns tensors of all workers' rows.
Gather = Callable[[list[Any]], list[Any]]

_gathers: list[Gather] = []  # of this process; the last one counts


def global_batch(tensors: Any) -> Any:
    """Return the rows of the global batch: those of all workers, with gradients that flow back to each.

    Call it in a ``train_step``, a ``test_step``, a ``compute_loss`` or a layer of your own, for each tensor that a loss
    compares rows of. Then compute the loss of all rows, on every worker alike. :func:`dask_train.fit` trains the model
    of one process with it, on any number of workers.

    Parameters
    ----------
    tensors : tensor, or list, tuple or dict of tensors
        One row for each row of the batch, along the first axis. Several tensors are gathered faster in one call.

    Returns
    -------
    tensor, or list, tuple or dict of tensors
        Of the same dtypes, with the rows of the first worker first. The tensors themselves where one process trains:
        in Keras' own ``fit``, in ``dt.fit`` with one worker, in callbacks and in predictions.

    Raises
    ------
    ValueError
        A tensor has another number of rows than the batch, or holds text; or the workers train asynchronously.

    Notes
    -----
    Backward, the derivatives of all workers are summed. The loss of the global batch is the mean of the workers'
    losses, each weighted with its share of the rows. So a loss of gathered rows alone counts once, and a mean over a
    worker's own rows counts with these.

    Examples
    --------
    >>> import numpy as np
    >>> import dask_train as dt
    >>> dt.keras.global_batch(np.arange(3))
    array([0, 1, 2])
    """
    if not _gathers:
        return tensors
    import keras

    flat = keras.tree.flatten(tensors)
    if any(isinstance(one, keras.KerasTensor) for one in flat):
        return tensors  # a model is put together
    return keras.tree.pack_sequence_as(tensors, _gathers[-1](flat))


@contextmanager
def gathered_by(gather: Gather) -> Iterator[None]:
    """Let :func:`global_batch` gather rows with this function inside the context."""
    _gathers.append(gather)
    try:
        yield
    finally:
        _gathers.remove(gather)


@contextmanager
def without_global_batch(why: str | None, is_alone: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Let :func:`global_batch` raise an error inside the context, where it could return this worker's rows only.

    Parameters
    ----------
    why
        Reason and what to change, for the error. None: it does not raise.
    is_alone
        Return whether the current batch is of this process alone; then it has all rows, and does not raise.
    """

    def gather(tensors: list[Any]) -> list[Any]:
        if why is None or is_alone():
            return tensors
        raise ValueError(f"dt.keras.global_batch has no rows of other workers: {why}")

    with gathered_by(gather):
        yield
