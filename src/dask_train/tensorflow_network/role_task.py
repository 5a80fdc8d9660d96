"""The Dask task that a role is.

It travels by value (``dask_train.cluster.by_value.ByValue``) and imports what it needs where it runs: the scheduler
unpickles every task, and need not have dask-train.
"""

from __future__ import annotations

from typing import Any


def run_role(network: str, pickled: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the thread back to Dask, check that this still is the place, run the function.

    Parameters
    ----------
    network
        The network whose role it is.
    pickled
        The function, unseen by the scheduler, which need not have its module either.
    args, kwargs
        For the function; Dask futures have become their values.
    """
    from distributed import get_worker, secede
    from distributed.protocol.pickle import loads

    from dask_train.errors import ClosedError
    from dask_train.tensorflow_network.member import member_of

    secede()
    member = member_of(get_worker(), network)
    try:
        return loads(pickled)(*args, **kwargs)
    except ClosedError:
        if member.queue.closed:
            return None  # the future has ended with this error already: the scheduler reports a closed network
        raise
