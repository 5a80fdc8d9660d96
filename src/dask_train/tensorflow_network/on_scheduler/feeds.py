"""Feeds: which of the waiting batches goes to which Dask worker next.

Workers ask when their queue has room, so a slow one takes less, and each is given what it already holds first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dask_train.scheduler.watched import Watched

from .networks import RUNNING, LeasedNetwork

MAX_TRIES = 3

# A batch that could not be fetched is tried again after this many seconds, then after twice as many: its holder may
# just have died, which Dask learns from the closed connection, or be too busy to accept one.
RETRY_S = 0.5


@dataclass
class FeedState(Watched):
    """One list of batches on its way into the queues of one job.

    ``dropped`` is set where it was cancelled or its network ended, so that the rest does not count as delivered.
    """

    id: str
    network: LeasedNetwork
    job: str
    keys: list[Any]
    todo: dict[Any, None] = field(init=False)
    under_way: dict[Any, str] = field(default_factory=dict)
    delivered: list[Any] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    tries: dict[Any, int] = field(default_factory=dict)
    version: int = 0
    dropped: bool = False

    def __post_init__(self) -> None:
        self.todo = dict.fromkeys(self.keys)

    @property
    def over(self) -> bool:
        return not self.todo and not self.under_way

    def fail(self, key: Any, why: str) -> None:
        self.todo.pop(key, None)
        self.under_way.pop(key, None)
        self.failed[str(key)] = why
        self.touch()

    def touch(self) -> None:
        """Let the client that watches it look again."""
        self.version += 1
        self.wake()

    def report(self, known: int) -> dict[str, Any]:
        """How it stands, with the keys delivered beyond the first ``known``, which the client need not keep alive."""
        return {
            "version": self.version,
            "waiting": len(self.todo) + len(self.under_way),
            "delivered": self.delivered[known:],
            "failed": self.failed,
        }


class Feeds:
    """All feeds of a scheduler that still have something to deliver or to tell."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.by_id: dict[str, FeedState] = {}
        self._watched: dict[Any, set[str]] = {}

    def add(self, feed: FeedState) -> None:
        self.by_id[feed.id] = feed
        for key in feed.keys:
            self._watched.setdefault(key, set()).add(feed.id)
            self._check(feed, key)
        feed.touch()
        feed.network.wake()

    def drop(self, feed_id: str) -> None:
        feed = self.by_id.pop(feed_id, None)
        if feed is None:
            return
        for key in feed.keys:
            self._watched[key].discard(feed_id)
            if not self._watched[key]:
                del self._watched[key]
        feed.dropped = not feed.over
        feed.touch()

    def drop_network(self, network_id: str) -> None:
        for feed in [feed for feed in self.by_id.values() if feed.network.id == network_id]:
            self.drop(feed.id)

    def transition(self, key: Any, finish: str) -> None:
        """Note a task's change of state; called for every task of the scheduler, so it must cost next to nothing."""
        if key in self._watched and finish in ("memory", "erred", "forgotten"):
            for feed_id in list(self._watched[key]):
                feed = self.by_id[feed_id]
                if finish == "memory":
                    feed.network.wake()
                elif key in feed.todo:
                    self._check(feed, key, finish)

    def _check(self, feed: FeedState, key: Any, state: str = "") -> None:
        task = self.scheduler.tasks.get(key)  # None: not yet sent by its client, whose graphs take another way
        if state == "forgotten":
            feed.fail(key, "was released, or lost with its Dask worker, before it was delivered")
        elif task is not None and "erred" in (task.state, state):
            blamed = task.exception_blame or task
            feed.fail(key, f"ended in an error: {blamed.exception_text or 'unknown'}")

    def take(self, network: LeasedNetwork, address: str) -> dict[str, Any] | None:
        """Return the next batch for the Dask worker at ``address``, or None if none is ready."""
        if network.state != RUNNING:
            return None
        job, _ = network.members[address]
        for feed in self.by_id.values():
            if feed.network is network and feed.job == job and (key := self._choose(feed, address)) is not None:
                del feed.todo[key]
                feed.under_way[key] = address
                holders = [ws.address for ws in self.scheduler.tasks[key].who_has]
                return {"feed": feed.id, "key": key, "who_has": holders}
        return None

    def _choose(self, feed: FeedState, address: str) -> Any:
        """Return a batch that lies at ``address``; else one from the Dask worker that still holds the most of them."""
        ws = self.scheduler.workers.get(address)
        backlog: dict[Any, list[Any]] = {}
        for key in feed.todo:
            task = self.scheduler.tasks.get(key)
            if task is None or task.state != "memory":
                continue
            if ws in task.who_has:
                return key
            backlog.setdefault(next(iter(task.who_has)), []).append(key)
        return max(backlog.values(), key=len)[0] if backlog else None

    def delivered(self, feed_id: str, key: Any, error: str) -> None:
        """Note that a Dask worker has put ``key`` into its queue, or could not get it."""
        feed = self.by_id.get(feed_id)
        if feed is None or key not in feed.under_way:
            return
        if error:
            self._again(feed, key, error)
        else:
            del feed.under_way[key]
            feed.delivered.append(key)
            feed.touch()

    def _again(self, feed: FeedState, key: Any, error: str) -> None:
        """Send a batch again that was lost, perhaps with its holder: Dask computes it again, but not for ever."""
        tries = feed.tries[key] = feed.tries.get(key, 0) + 1
        if tries < MAX_TRIES:
            self.scheduler.loop.call_later(RETRY_S * 2 ** (tries - 1), self._retry, feed, key)
        else:
            feed.fail(key, f"could not be brought to a queue in {MAX_TRIES} tries: {error}")

    def _retry(self, feed: FeedState, key: Any) -> None:
        if feed.under_way.pop(key, None) is None:
            return
        feed.todo[key] = None
        self._check(feed, key, "" if key in self.scheduler.tasks else "forgotten")
        feed.network.wake()
