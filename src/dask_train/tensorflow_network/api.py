"""A TensorFlow network inside the Dask worker processes: ``start_tensorflow``.

The lowest tier, for your own TensorFlow program: real ``tf.distribute.Server`` objects, one per Dask
worker; user code as ordinary pinned Dask tasks; a queue on each Dask worker.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.arguments import check_flags
from dask_train.cluster.clients import client_or_local
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.config import Deadlines
from dask_train.frameworks.tensorflow.server import start_server
from dask_train.input_errors import raises_at_the_call
from dask_train.roles import AddressBook, check_jobs
from dask_train.tensorflow_network.launch import NetworkPlan, launch
from dask_train.tensorflow_network.network import Network

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


class TensorFlowNetwork(Network):
    """A running network of TensorFlow servers; made by :func:`start_tensorflow`.

    Unpacks into its two address books, and closes at the end of a ``with``.

    Attributes
    ----------
    tf_spec : AddressBook
        ``host:port`` of every server, by job and task index. TensorFlow takes it wherever it takes a cluster.
    dask_spec : AddressBook
        The address of the Dask worker whose process holds that server, at the same job and index.
    """

    def __iter__(self) -> Iterator[AddressBook]:
        return iter((self.tf_spec, self.dask_spec))

    def target(self, job: str, index: int = 0) -> str:
        """``grpc://host:port`` of one server, for a ``tf.compat.v1.Session`` anywhere on the network.

        Parameters
        ----------
        job, index
            Number of the task. Default: 0.

        Returns
        -------
        str
            A target of ``tf.compat.v1.Session``.

        Raises
        ------
        ValueError
            There is no such task.

        Notes
        -----
        Where the environment of a process names a proxy (``http_proxy``), gRPC connects through it. The servers are set
        to reach each other directly. For a session in the client, list the hosts in ``no_proxy`` before TensorFlow
        connects: ``os.environ["no_proxy"] = ",".join(hosts)``.
        """
        return f"grpc://{self.tf_spec.task_address(job, index)}"

    def __repr__(self) -> str:
        jobs = ", ".join(f"{job}={len(places)}" for job, places in self.tf_spec.items())
        return f"<TensorFlowNetwork {self.id}: {jobs}, {self.status}>"


@raises_at_the_call
@frees_its_thread
def start_tensorflow(
    client: Client | None = None,
    *,
    jobs: Mapping[str, int] | None = None,
    on: Sequence[str] | None = None,
    queue_size: int = 4,
    leave_servers: bool = False,
    **counts: int,
) -> TensorFlowNetwork:
    """Start a TensorFlow network inside the Dask worker processes, one task per Dask worker.

    Parameters
    ----------
    client
        The task's own client in a Dask task, else ``distributed.default_client()``; where there is
        none, a local cluster is started.
    jobs, **counts
        Tasks by job name, such as ``ps=1, worker=4, scorer=1``; any names, ``jobs={"on": 2}`` for those that are
        arguments here. Without any: job ``worker`` on every Dask worker that is free; one that is paused, or carries
        another network, is left out.
    on
        Addresses of Dask workers to choose from, in this order. Default: all, spread over the hosts.
    queue_size
        Number of batches that each task's queue holds at most. Default: 4.
    leave_servers
        Leave the servers in their processes when the network closes. Needed where Dask workers have no nanny, as
        in ``LocalCluster(processes=False)``: a TensorFlow server can't be stopped without its process.

    Returns
    -------
    TensorFlowNetwork
        ``tf_spec, dask_spec = start_tensorflow(...)`` works, too. With an asynchronous client, an awaitable of it.

    Raises
    ------
    ValueError, TypeError
        A job's name or count is invalid; there is no client.
    PlacementError
        Too few free Dask workers, or no nanny. Nothing was started.
    VersionMismatchError, LaunchError
        A Dask worker has no TensorFlow or another version, or a server did not start within
        ``train.launch.timeout``. Dask workers whose servers had started were restarted.

    Notes
    -----
    TensorFlow's servers listen on all interfaces, without TLS or authentication: on a network that is not yours
    alone, block these ports from other users.

    Examples
    --------
    >>> net = dt.start_tensorflow(client, ps=1, worker=4, scorer=1)
    >>> tf_spec, dask_spec = net
    >>> futures = net.submit("worker", train)
    """
    checked = check_jobs(jobs, counts)
    _check_settings(on, queue_size)
    check_flags(leave_servers=leave_servers)
    client = client_or_local(client, sum(checked.values()))
    plan = NetworkPlan(
        id=f"tf-{uuid.uuid4().hex[:8]}",
        counts=checked,
        on=on,
        leave_servers=leave_servers,
        queue_size=queue_size,
        start_server=partial(start_server, process_ends_with_it=not leave_servers),
    )
    starting: list[asyncio.Task[TensorFlowNetwork]] = []
    try:
        network: TensorFlowNetwork = client.sync(_start, client, plan, Deadlines.from_dask_config(), starting)
        return network
    except BaseException:  # a signal's, perhaps, which the event loop does not see
        for task in starting:
            client.loop.add_callback(task.cancel)  # undoes what was started
            with suppress(Exception):
                client.sync(_ended, task)
        raise


def _check_settings(on: Any, queue_size: Any) -> None:
    if on is not None:
        if isinstance(on, str) or not isinstance(on, Sequence) or not all(isinstance(address, str) for address in on):
            raise TypeError(f"on is {on!r}; pass a list of Dask worker addresses, such as ['tcp://10.0.0.5:4011'].")
        if twice := sorted({address for address in on if on.count(address) > 1}):
            raise ValueError(f"on names {', '.join(twice)} twice, but a Dask worker takes one task. Name it once.")
    if isinstance(queue_size, bool) or not isinstance(queue_size, int) or queue_size < 1:
        raise ValueError(f"queue_size is {queue_size!r}; a queue holds at least 1 batch.")


async def _start(
    client: Client, plan: NetworkPlan, deadlines: Deadlines, starting: list[asyncio.Task[TensorFlowNetwork]]
) -> TensorFlowNetwork:
    starting.append(asyncio.ensure_future(_started(client, plan, deadlines)))
    return await starting[0]


async def _ended(task: asyncio.Task[TensorFlowNetwork]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:  # it was up by then, and no one holds it
        await task.result()._close(False, Deadlines.from_dask_config().close_s)


async def _started(client: Client, plan: NetworkPlan, deadlines: Deadlines) -> TensorFlowNetwork:
    tf_spec, dask_spec = await launch(client, plan, deadlines)
    return TensorFlowNetwork(client, plan.id, tf_spec, dask_spec, leave_servers=plan.leave_servers)
