"""The plug-in for networks, feeds and boards: what may be asked, and which of the scheduler's events matter to them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_train.scheduler.handlers import register_handlers
from dask_train.scheduler.watched import changed_within

from .boards import Boards, RingBuffer
from .drain import restart_emptied, stuck
from .feeds import Feeds, FeedState
from .lost_worker_checks import LostWorkerChecks
from .networks import CLOSING, LOST, PLUGIN, RESERVED, RUNNING, LeasedNetwork, Networks

logger = logging.getLogger("dask_train.scheduler")

# A client tells what it releases in batches of 10 ms, and on another connection than its questions.
RELEASE_S = 0.5
# How many networks are remembered that were given up before they were reserved: few at a time can be on their way.
MOST_GIVEN_UP = 1000


class NetworksPlugin(SchedulerPlugin):
    """Networks, feeds and boards of dask-train, kept where every client and Dask worker can ask for them."""

    name = PLUGIN
    idempotent = True

    def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.boards = Boards()
        self.networks = Networks(scheduler)
        self.feeds = Feeds(scheduler)
        self.lost_worker_checks = LostWorkerChecks(scheduler)
        self._closing: set[asyncio.Task[Any]] = set()
        self._restarting = asyncio.Lock()
        self._given_up: deque[str] = deque(maxlen=MOST_GIVEN_UP)
        register_handlers(scheduler, self)

    def why_taken(self, address: str) -> str:
        """Return what other plug-ins of ours ask: see ``dask_train.scheduler.taken``."""
        return self.networks.why_taken(address)

    # What the scheduler tells; it passes itself, and these arguments by name

    def add_worker(self, *, worker: str, **_: Any) -> None:
        self.lost_worker_checks.added(worker)

    def remove_worker(self, *, worker: str, **_: Any) -> None:
        self.lost_worker_checks.removed(worker)
        self.networks.spent.pop(worker, None)
        for net in self.networks.of_member(worker):
            if net.state in (RESERVED, RUNNING):
                job, index = net.members[worker]
                self._lose(
                    net, f"{job} {index} of network {net.id} is gone: its Dask worker {worker} left the cluster."
                )

    def remove_client(self, *, client: str, **_: Any) -> None:
        for net in self.networks.of_client(client):
            closing = asyncio.ensure_future(self._close_for(net))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _close_for(self, net: LeasedNetwork) -> None:
        """Close the network of a client that left, which can't be asked about other clients' data."""
        try:
            answer = await self.train_close(network=net.id, force=False, timeout_s=net.close_s)
        except Exception:
            if self.networks.by_id.get(net.id) is net:  # else that was logged there, and the lease is over
                logger.exception("Closing network %s of a client that left failed", net.id)
                self._end(net, spent=True)
            return
        if answer["status"] == "held":
            logger.warning(
                "Network %s of a client that left ends without a restart: its servers stay in their processes, because "
                "what lies only there can be neither moved nor computed again: %s",
                net.id,
                ", ".join(answer["keys"][:10]),
            )
            self._end(net, spent=True)

    def transition(self, key: Any, _start: str, finish: str, *_: Any, **__: Any) -> None:
        self.feeds.transition(key, finish)
        self.networks.transition(key, finish)

    def valid_workers_downscaling(self, _scheduler: Any, workers: list[Any]) -> list[Any]:
        return [ws for ws in workers if not self.networks.of_member(ws.address)]

    # Networks

    async def train_reserve(
        self,
        *,
        network: str,
        client: str,
        counts: dict[str, int],
        on: list[str] | None,
        leave_servers: bool,
        errors: dict[str, bytes],
        close_s: float,
    ) -> dict[str, Any]:
        if network in self._given_up:
            return {"status": "forgotten"}
        net = LeasedNetwork(network, client, leave_servers, errors, close_s)
        return self.networks.reserve(net, counts, None if on is None else list(on))

    async def train_started(self, *, network: str) -> dict[str, Any]:
        net = self.networks.by_id.get(network)
        if net is None:
            return _closed()
        if net.state == RESERVED:
            net.state = RUNNING
            net.wake()
        return net.report()

    async def train_watch(self, *, network: str, seen: str, timeout_s: float) -> dict[str, Any]:
        """Return the state of a network, as soon as it is another than ``seen``."""
        net = self.networks.by_id.get(network)
        if net is not None and net.state == seen:
            await changed_within(net.changed, timeout_s)
            net = self.networks.by_id.get(network)
        return net.report() if net is not None else _closed()

    async def train_roles(self, *, network: str, keys: Iterable[Any]) -> dict[str, Any]:
        """Take tasks for roles of the network: they end with it."""
        net = self.networks.by_id.get(network)
        if net is None:
            return _closed()
        self.networks.add_roles(net, keys)
        return net.report()

    async def train_forget(self, *, network: str, spent: bool) -> dict[str, Any]:
        """End a lease without a restart: nothing was started, or the Dask workers are spent.

        One that is not known may be asked for by a message that is still on its way on another connection.
        """
        net = self.networks.by_id.get(network)
        if net is not None:
            self._end(net, spent=spent)
        else:
            self._given_up.append(network)
        return {"status": "OK"}

    async def train_close(self, *, network: str, force: bool, timeout_s: float) -> dict[str, Any]:
        """Restart the Dask workers of a network, their data moved first."""
        net = self.networks.by_id.get(network)
        if net is not None and net.leave_servers:
            self._end(net)
            return {"status": "OK", "missing": []}
        async with self._restarting:  # the next one may be about to restart what this one moves data to
            net = self.networks.by_id.get(network)
            if net is None:
                return {"status": "OK", "missing": []}
            members = [address for address in net.members if address in self.scheduler.workers]
            if not force and (keys := await self._stuck(members)):
                return {"status": "held", "keys": keys}
            return await self._restart(net, members, timeout_s, force=force)

    async def _restart(
        self, net: LeasedNetwork, members: list[str], timeout_s: float, *, force: bool
    ) -> dict[str, Any]:
        net.state = CLOSING
        self._stop(net)
        try:
            await self.lost_worker_checks.quiet(members)
            missing, keys = await restart_emptied(self.scheduler, members, timeout_s, force=force)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):  # the scheduler itself is closing
                logger.exception("Closing network %s failed", net.id)
            self._end(net, spent=True)  # those that were not restarted hold a server
            raise
        if keys:
            self._lose(net, f"The close of network {net.id} stopped half-way.")
            return {"status": "held", "keys": keys}
        self._end(net)
        return {"status": "OK", "missing": missing}

    async def _stuck(self, members: list[str]) -> list[str]:
        """Return what keeps ``members`` from restarting; a client's release may still be on its way."""
        deadline = time.monotonic() + RELEASE_S
        while (keys := stuck(self.scheduler, members)) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return keys

    def _lose(self, net: LeasedNetwork, loss: str) -> None:
        """Give up the network, and tell all waiters why."""
        net.state, net.loss = LOST, loss
        self._stop(net)

    def _end(self, net: LeasedNetwork, *, spent: bool = False) -> None:
        """End the lease."""
        self.networks.forget(net, spent=spent)
        self._stop(net)

    def _stop(self, net: LeasedNetwork) -> None:
        """End what runs in a network that is lost, closing or closed, and wake all waiters."""
        self.feeds.drop_network(net.id)
        self.networks.end_roles(net)
        self.boards.wake_all()
        net.wake()

    # Feeds

    async def train_feed(self, *, network: str, feed: str, job: str, keys: list[Any]) -> dict[str, Any]:
        net = self.networks.by_id.get(network)
        if net is None:
            return _closed()
        if net.state == RUNNING:
            self.feeds.add(FeedState(feed, net, job, list(keys)))
        return net.report()

    async def train_feed_watch(
        self, *, network: str, feed: str, seen: int, known: int, timeout_s: float
    ) -> dict[str, Any]:
        """Return how a feed stands, as soon as its version is above ``seen``; a feed that is over is then forgotten."""
        entry = self.feeds.by_id.get(feed)
        if entry is not None and entry.version <= seen:
            await changed_within(entry.changed, timeout_s)
        net = self.networks.by_id.get(network)
        state = net.report() if net is not None else _closed()
        if entry is None or entry.dropped:
            return state
        if entry.over:
            self.feeds.drop(feed)
        return {**state, **entry.report(known)}

    async def train_feed_cancel(self, *, feed: str) -> dict[str, Any]:
        self.feeds.drop(feed)
        return {"status": "OK"}

    async def train_take(self, *, network: str, address: str, timeout_s: float) -> dict[str, Any]:
        """Return the next batch for a member's queue, as soon as there is one."""
        net = self.networks.by_id.get(network)
        if net is None:
            return _closed()
        deadline = time.monotonic() + timeout_s
        while (batch := self.feeds.take(net, address)) is None and net.state in (RESERVED, RUNNING):
            if not await changed_within(net.changed, deadline - time.monotonic()):
                break
        return {**net.report(), "batch": batch}

    async def train_delivered(self, *, feed: str, key: Any, error: str = "") -> dict[str, Any]:
        self.feeds.delivered(feed, key, error)
        return {"status": "OK"}

    # Boards

    async def train_board_append(
        self, *, board: str, maxlen: int, who: str, values: list[bytes], ring: str, since: int
    ) -> dict[str, Any]:
        entry = self._ring(board, maxlen, who)
        entry.append(values)
        return self._read(entry, maxlen, who, ring, since)

    async def train_board_read(
        self, *, board: str, maxlen: int, who: str, ring: str, since: int, networks: dict[str, str], timeout_s: float
    ) -> dict[str, Any]:
        """Return the values of a board from ``since`` on, as soon as there is one, or news of a network."""
        entry = self._ring(board, maxlen, who)
        answer = self._read(entry, maxlen, who, ring, since)
        known = answer["ring"] == ring and not answer["values"] and answer["networks"] == networks
        if known and timeout_s and await changed_within(entry.changed, timeout_s):
            answer = self._read(self.boards.rings.get(board, entry), maxlen, who, ring, since)
        return answer

    def _ring(self, board: str, maxlen: int, who: str) -> RingBuffer:
        ring = self.boards.ring(board, maxlen)
        ring.networks.intersection_update(self.networks.by_id)
        ring.networks.update(net.id for net in self.networks.of_member(who))
        return ring

    def _read(self, ring: RingBuffer, maxlen: int, who: str, known: str, since: int) -> dict[str, Any]:
        """Read a board, for the networks whose Dask workers opened it, else for those of the asking client."""
        opened = [net for n in ring.networks if (net := self.networks.by_id.get(n)) is not None]
        networks = {net.id: net.loss for net in opened or self.networks.of_client(who) if net.state != CLOSING}
        first, values = ring.since(since if ring.id == known else 0, maxlen)
        return {"status": "OK", "ring": ring.id, "first": first, "values": values, "networks": networks}

    async def train_board_delete(self, *, board: str) -> dict[str, Any]:
        self.boards.delete(board)
        return {"status": "OK"}

    # For readers

    async def train_networks(self) -> dict[str, Any]:
        """Return what is kept now, for tests and the curious."""
        return {
            "networks": {net.id: {"state": net.state, "jobs": net.jobs} for net in self.networks.by_id.values()},
            "feeds": list(self.feeds.by_id),
            "boards": {name: ring.count for name, ring in self.boards.rings.items()},
        }


def _closed() -> dict[str, Any]:
    return {"status": "OK", "state": "closed", "loss": ""}
