"""The client's side of a feed: batches on their way from Dask's memory into the queues of one job."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from distributed import Future

from dask_train.cluster.peer import Peer
from dask_train.config import Deadlines, seconds_or
from dask_train.errors import ClosedError, DataError, RoleLostError
from dask_train.tensorflow_network.mirror import Mirror


class Feed(Mirror):
    """Batches on their way; made by ``TensorFlowNetwork.feed``.

    The futures are kept alive here until their batches are in a queue. Each batch goes to exactly one Dask worker:
    the one that asks next and holds it already, or else another one.

    Attributes
    ----------
    waiting, delivered
        Batches not yet, and already, in a queue, as last reported by the scheduler.
    """

    def __init__(self, peer: Peer, network: str, job: str, futures: Sequence[Future]) -> None:
        super().__init__(peer)
        self.id = f"feed-{uuid.uuid4().hex[:12]}"
        self.waiting = len(futures)
        self.delivered = 0
        self._network = network
        self._job = job
        self._futures = {future.key: future for future in futures}
        self._failed: dict[str, str] = {}
        self._version = -1

    async def _start(self) -> Feed:
        answer = await self._peer.ask(
            "train_feed", network=self._network, feed=self.id, job=self._job, keys=list(self._futures)
        )
        self._check_network(answer)
        self._follow()
        return self

    async def _poll(self, timeout_s: float) -> None:
        answer = await self._peer.ask(
            "train_feed_watch",
            network=self._network,
            feed=self.id,
            seen=self._version,
            known=self.delivered,
            timeout_s=timeout_s,
        )
        if "version" not in answer:
            self._futures.clear()
            self._check_network(answer)
            raise ClosedError(f"{self!r} was cancelled.")
        self._version, self.waiting, self._failed = answer["version"], answer["waiting"], answer["failed"]
        for key in answer["delivered"]:
            self._futures.pop(key, None)
        self.delivered += len(answer["delivered"])
        if not self.waiting:
            self._futures.clear()
            self._end()

    def _check_network(self, answer: dict[str, Any]) -> None:
        if answer["loss"]:
            raise RoleLostError(answer["loss"], f"{self.waiting} batches were not delivered.", "Close the network.")
        if answer["state"] not in ("running", "reserved"):
            raise ClosedError(f"The network was closed with {self.waiting} batches waiting.")

    def wait(self, timeout_s: float | None = None) -> Any:
        """Wait until every batch is in a queue.

        Parameters
        ----------
        timeout_s
            Seconds; default: ``train.progress.timeout``.

        Returns
        -------
        This feed, or an awaitable of it with an asynchronous client.

        Raises
        ------
        StalledError
            Batches still wait at the deadline: no task takes them out of the queues.
        DataError
            A batch can't be computed, or its future was released. The others are still delivered.
        RoleLostError
            The network lost a Dask worker.
        ClosedError
            The network was closed, or the feed cancelled, while batches waited.
        """
        return self._peer.run(self._wait, seconds_or(Deadlines.from_dask_config().progress_s, timeout_s))

    async def _wait(self, timeout_s: float) -> Feed:
        total = self.waiting + self.delivered + len(self._failed)
        await self._until(
            lambda: not self.waiting or bool(self._failed), timeout_s, f"The delivery of all {total} batches"
        )
        if self._failed:
            key, why = next(iter(self._failed.items()))
            raise DataError(
                f"{len(self._failed)} of {total} batches can't be fed; the first, {key}, {why}.",
                change="Mend what computes it, keep its future alive, and feed again.",
            )
        return self

    def cancel(self) -> Any:
        """Deliver no more; what is in the queues already stays there."""
        return self._peer.run(self._cancel)

    async def _cancel(self) -> None:
        await self._peer.ask("train_feed_cancel", feed=self.id)

    def __repr__(self) -> str:
        return f"<Feed to {self._job}: {self.delivered} delivered, {self.waiting} waiting>"
