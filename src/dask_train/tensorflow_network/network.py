"""A running network as its client sees it: role tasks pinned to their places, feeds, losses, and the end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from distributed import Client, Future
from distributed.protocol.pickle import dumps

from dask_train.cluster.by_value import ByValue
from dask_train.cluster.own_cluster import Shield
from dask_train.cluster.peer import Peer
from dask_train.config import Deadlines, seconds_or
from dask_train.errors import ClosedError, DataError, LaunchError, RoleLostError
from dask_train.input_errors import raises_at_the_call
from dask_train.roles import AddressBook
from dask_train.tensorflow_network import role_task as role
from dask_train.tensorflow_network.feed import Feed
from dask_train.tensorflow_network.member import leave
from dask_train.tensorflow_network.mirror import Mirror


class Network(Mirror):
    """Tasks of a network on their Dask workers; the part that no framework is needed for."""

    def __init__(
        self, client: Client, network_id: str, tf_spec: AddressBook, dask_spec: AddressBook, *, leave_servers: bool
    ) -> None:
        super().__init__(Peer(client))
        self.id = network_id
        self.tf_spec = tf_spec
        self.dask_spec = dask_spec
        self._leave_servers = leave_servers
        self._state = "running"
        self._loss = ""
        self._shield = Shield(self._peer, is_up=True)  # by launch
        self._feeds: list[Feed] = []
        self._follow()

    async def _poll(self, timeout_s: float) -> None:
        answer = await self._peer.ask("train_watch", network=self.id, seen=self._state, timeout_s=timeout_s)
        if self._state == "closed":  # by close(), whose answer has overtaken this one
            return
        self._state, self._loss = answer["state"], answer["loss"]
        if self._state in ("lost", "closed"):
            self._end()
        if self._state == "closed":  # by another client, or a close() that was interrupted
            await self._shield.down()

    @property
    def status(self) -> str:
        """``"running"``, ``"lost"`` (a Dask worker of it is gone), ``"closing"`` or ``"closed"``, as last reported."""
        return self._state

    @raises_at_the_call
    def submit(self, job: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Future]:
        """Run ``fn`` once on each Dask worker of ``job``, as a Dask task that holds no thread of the Dask worker.

        Parameters
        ----------
        job
            A job of this network.
        fn
            The role. In it, ``get_worker().tensorflow_server`` and ``.tensorflow_queue`` are this task's own.
        *args, **kwargs
            For ``fn``; Dask futures arrive as their values.

        Returns
        -------
        list of distributed.Future
            One a task, by task index. When a Dask worker of the network is lost, all of them that have not ended
            end with :class:`RoleLostError`: TensorFlow itself tells peers nothing.

        Raises
        ------
        ValueError
            There is no such job.
        TypeError
            ``fn`` can't be called.
        RoleLostError, ClosedError
            The network has ended.
        """
        if not callable(fn):
            raise TypeError(f"submit takes a function for job {job!r}, not {fn!r}.")
        places = self.dask_spec.job_tasks(job)
        self._check_open()
        name = getattr(fn, "__name__", "role")
        task, pickled = ByValue(role.run_role, role), dumps(fn)
        futures = [
            self._peer.dask_end.submit(
                task,
                self.id,
                pickled,
                args,
                kwargs,
                key=f"{name}-{job}-{index}-{uuid.uuid4().hex[:12]}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                priority=10,  # a role starts before the data tasks that wait for the same thread
            )
            for index, address in enumerate(places)
        ]
        self._peer.spawn(_Announce(self._peer, self.id, futures))
        return futures

    @raises_at_the_call
    def feed(self, batches: Iterable[Future], *, to: str) -> Any:
        """Bring batches into the queues of a job's Dask workers, each to exactly one, as room and computing allow.

        Parameters
        ----------
        batches
            Dask futures; each becomes one item of a queue. They may still be computing.
        to
            The job.

        Returns
        -------
        Feed
            It tells what waits; an awaitable of it with an asynchronous client. A batch that the Dask worker holds
            already is handed over without a copy; one that lies elsewhere is moved once.

        Raises
        ------
        TypeError
            A batch is no future.
        ValueError
            There is no such job, no batch, or a batch stands there twice.
        DataError
            A batch was cancelled or released.
        RoleLostError, ClosedError
            The network can't take any.

        Notes
        -----
        No share is promised: a quick task takes more than a slow one. A role should continue until it is asked to stop,
        by a board for instance, and not for a number of batches.
        """
        futures = list(batches)
        self.dask_spec.job_tasks(to)
        if not futures:
            raise ValueError("feed was given no batches.")
        for batch in futures:
            if not isinstance(batch, Future):
                raise TypeError(
                    f"feed takes Dask futures, not a {type(batch).__name__}. "
                    "client.compute([delayed, ...]) makes futures of delayed values, client.scatter of local ones."
                )
        if len({future.key for future in futures}) < len(futures):
            raise ValueError("feed was given the same batch twice. Feed it in two calls to train on it twice.")
        return self._peer.run(self._feed, futures, to)

    async def _feed(self, futures: list[Future], to: str) -> Feed:
        self._check_open()
        if gone := [future.key for future in futures if future.cancelled()]:
            raise DataError(
                f"{len(gone)} of {len(futures)} batches were cancelled or released; the first is {gone[0]}."
            )
        feed = await Feed(self._peer, self.id, to, futures)._start()
        self._feeds = [old for old in self._feeds if old.waiting and old._failure is None] + [feed]
        return feed

    def _check_open(self) -> None:
        if self._loss:
            raise RoleLostError(self._loss, change="Close the network and start it again.")
        if self._state != "running":
            raise ClosedError(f"Network {self.id} is {self._state}.", change="Start a new one.")

    def wait_lost(self, timeout_s: float | None = None) -> Any:
        """Wait until the network loses a Dask worker, and raise what was lost; for programs that only watch.

        Parameters
        ----------
        timeout_s
            Seconds; default: ``train.progress.timeout``.

        Returns
        -------
        None
            Never: it raises, with an asynchronous client where it is awaited.

        Raises
        ------
        RoleLostError
            A Dask worker is gone.
        ClosedError
            The network was closed.
        StalledError
            Neither happened within ``timeout_s`` seconds (default: ``train.progress.timeout``).
        """
        return self._peer.run(self._wait_lost, seconds_or(Deadlines.from_dask_config().progress_s, timeout_s))

    async def _wait_lost(self, timeout_s: float) -> None:
        await self._until(lambda: self._state != "running", timeout_s, f"A loss in network {self.id}")
        self._check_open()

    def close(self, *, force: bool = False, timeout_s: float | None = None) -> Any:
        """End the network: its Dask workers are restarted through their nannies and are back when this returns.

        What only they hold is moved to other Dask workers first, or to one half of them while the other restarts.
        Roles that still run end with their processes; everyone who waits on a queue, a feed or a board is woken.
        Closing twice is fine.

        Parameters
        ----------
        force
            Close even where data would be lost.
        timeout_s
            Seconds; default: ``train.close.timeout``.

        Returns
        -------
        None
            Or an awaitable of None with an asynchronous client.

        Raises
        ------
        DataError
            Data that only these Dask workers hold can be neither moved nor computed again; nothing was touched.
        LaunchError
            A Dask worker did not come back. The network is closed anyway.
        """
        return self._peer.run(self._close, force, seconds_or(Deadlines.from_dask_config().close_s, timeout_s))

    async def _close(self, force: bool, timeout_s: float) -> None:
        if self._state == "closed":
            return
        try:
            answer = await self._peer.ask("train_close", network=self.id, force=force, timeout_s=timeout_s)
        except RoleLostError:  # the scheduler is gone, and the network with it
            await self._shield.down()
            raise
        if answer["status"] == "held":
            raise DataError(
                f"Network {self.id} can't be closed: {len(answer['keys'])} results lie only on its Dask workers and "
                f"can be neither moved nor computed again: {', '.join(answer['keys'][:10])}.",
                "The other Dask workers have no room for them, or there are none.",
                "Release them, add a Dask worker, or lose them with close(force=True).",
            )
        self._state = "closed"
        self._end()
        if self._leave_servers:  # else their processes are gone
            members = [address for _, _, address in self.dask_spec.tasks()]
            await self._peer.on_workers(leave, self.id, workers=members, on_error="ignore")
        await self._shield.down()
        if answer["missing"]:
            raise LaunchError(
                f"{len(answer['missing'])} Dask workers did not come back; their nannies were "
                f"{', '.join(answer['missing'])}.",
                f"Their nannies have ended, or took longer than {timeout_s:g} s. The network is closed.",
                "Look at the nannies' logs, and start others, with cluster.scale for instance.",
            )

    def __enter__(self) -> Any:
        if self._peer.asynchronous:
            raise TypeError("With an asynchronous client, write: async with await dask_train.start_tensorflow(...).")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Announce:
    """Tells the scheduler which tasks are roles, so that a loss ends them."""

    def __init__(self, peer: Peer, network: str, futures: list[Future]) -> None:
        self._peer, self._network, self._futures = peer, network, futures

    async def __call__(self) -> None:
        keys = [future.key for future in self._futures]
        with suppress(RoleLostError):  # the client, or the scheduler, has ended meanwhile
            answer = await self._peer.ask("train_roles", network=self._network, keys=keys)
            if answer["state"] == "closed":
                await self._peer.cancel(self._futures)
