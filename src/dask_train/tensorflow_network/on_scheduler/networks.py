"""Networks: which Dask workers carry which task of which network, and what becomes of them.

A network is a lease on Dask workers, all or nothing. It takes the ``MultiLock`` of the workers' addresses, as
``xgboost.dask`` does, so that both exclude each other; a lease ends with its client, which a ``MultiLock`` does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dask_train.scheduler.taken import lock, unlock, why_taken
from dask_train.scheduler.watched import Watched

PLUGIN = "dask-train-networks"

RESERVED, RUNNING, LOST, CLOSING, CLOSED = "reserved", "running", "lost", "closing", "closed"

# The states from which Dask lets a task end in an error without having run.
_UNFINISHED = ("processing", "no-worker", "queued")


@dataclass
class LeasedNetwork(Watched):
    """One network: its tasks, the Dask workers under them, and its state.

    ``jobs`` are Dask workers by job and index, ``members`` the same the other way round.
    """

    id: str
    client: str
    leave_servers: bool
    errors: dict[str, bytes]
    close_s: float
    jobs: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    state: str = RESERVED
    loss: str = ""
    role_keys: set[Any] = field(default_factory=set)

    def report(self) -> dict[str, Any]:
        return {"status": "OK", "state": self.state, "loss": self.loss}


class Networks:
    """All networks of a scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.by_id: dict[str, LeasedNetwork] = {}
        self.spent: dict[str, str] = {}  # Dask workers with a server of a network that ended without their restart
        self._roles: dict[Any, LeasedNetwork] = {}

    def of_member(self, address: str) -> list[LeasedNetwork]:
        return [net for net in self.by_id.values() if address in net.members]

    def of_client(self, client: str) -> list[LeasedNetwork]:
        return [net for net in self.by_id.values() if net.client == client]

    def reserve(self, net: LeasedNetwork, counts: dict[str, int], on: list[str] | None) -> dict[str, Any]:
        """Place one task per Dask worker, all or nothing; without counts, job ``worker`` takes every free one."""
        if net.client not in self.scheduler.clients:  # it left while it asked, and no one would end the lease
            return {"status": "no client"}
        unknown = [address for address in on or () if address not in self.scheduler.workers]
        if unknown:
            return {"status": "unknown", "addresses": unknown, "known": list(self.scheduler.workers)}
        free, reasons = self._free(on)
        counts = counts or {"worker": len(free)}
        need = sum(counts.values())
        if need > len(free) or not need:
            return {"status": "too few", "need": need, "free": len(free), "taken": reasons}
        chosen = free[:need]
        if not net.leave_servers and (bare := [ws.address for ws in chosen if not ws.nanny]):
            return {"status": "no nanny", "addresses": bare}
        addresses = iter([ws.address for ws in chosen])
        net.jobs = {job: [next(addresses) for _ in range(count)] for job, count in counts.items()}
        net.members = {a: (job, index) for job, places in net.jobs.items() for index, a in enumerate(places)}
        lock(self.scheduler, list(net.members), net.id)
        self.by_id[net.id] = net
        return {"status": "OK", "jobs": net.jobs}

    def _free(self, on: list[str] | None) -> tuple[list[Any], dict[str, str]]:
        """Return the Dask workers that can take a task, spread over the hosts, and why the others can't."""
        workers = self.scheduler.workers
        candidates = list(workers.values()) if on is None else [workers[address] for address in on]
        by_host: dict[str, list[Any]] = defaultdict(list)
        reasons: dict[str, str] = {}
        for ws in candidates:
            why = self.why_taken(ws.address) or why_taken(self.scheduler, ws, asking=PLUGIN)
            if why:
                reasons[ws.address] = why
            else:
                by_host[ws.host].append(ws)
        if on is not None:
            return [ws for ws in candidates if ws.address not in reasons], reasons
        spread = [(turn, host, ws) for host, group in by_host.items() for turn, ws in enumerate(group)]
        return [ws for _, _, ws in sorted(spread, key=lambda item: item[:2])], reasons

    def why_taken(self, address: str) -> str:
        """Return why a Dask worker is taken, as the end of a sentence about it; empty if it is not by a network."""
        if nets := self.of_member(address):
            gone = "" if nets[0].client in self.scheduler.clients else " of a client that left"
            return f"carries network {nets[0].id}{gone}"
        if network_id := self.spent.get(address):
            return f"holds a server of network {network_id}, which ended without a restart"
        return ""

    def add_roles(self, net: LeasedNetwork, keys: Iterable[Any]) -> None:
        """Take tasks for roles of ``net``; they end with it, also where they come too late."""
        net.role_keys.update(keys)
        self._roles.update(dict.fromkeys(net.role_keys, net))
        if net.state not in (RESERVED, RUNNING):
            self.end_roles(net)

    def transition(self, key: Any, finish: str) -> None:
        """Note a task's change of state; called for every task of the scheduler, so it must cost next to nothing."""
        net = self._roles.get(key)
        if net is None:
            return
        if finish == "forgotten":
            del self._roles[key]
            net.role_keys.discard(key)
        elif finish in (*_UNFINISHED, "waiting") and net.state not in (RESERVED, RUNNING):
            self.scheduler.loop.add_callback(self.end_roles, net)  # a transition may not start another one

    def end_roles(self, net: LeasedNetwork) -> None:
        """End the unfinished role tasks of a network that is lost or closed with an error.

        A task that is pinned to a dead worker would wait for it for ever, and its peers may hang inside TensorFlow,
        which reports no lost peer. The errors were pickled by the client in pickle's text protocol, with a mark where
        the reason goes, because the scheduler may lack their classes.
        """
        reason = net.loss or f"Network {net.id} was closed."
        template = net.errors["lost" if net.loss else "closed"]
        exception = template.replace(b"@reason@", reason.replace("\n", " ").encode("raw_unicode_escape"))
        for key in list(net.role_keys):
            task = self.scheduler.tasks.get(key)
            if task is not None:
                self._end_role(task, exception, reason, f"train-roles-end-{net.id}")

    def _end_role(self, task: Any, exception: bytes, reason: str, stimulus: str) -> None:
        key, follow_up = task.key, {}
        if task.state in _UNFINISHED:
            follow_up = self.scheduler.transition(
                key, "erred", stimulus, exception=exception, exception_text=reason, cause=key
            )
        elif task.state == "waiting":  # for its arguments; Dask knows no way from there to an error of its own
            follow_up = self.scheduler.transition(key, "released", stimulus)
            follow_up.pop(key, None)
            task.exception, task.exception_text, task.exception_blame = exception, reason, task
            follow_up |= self.scheduler.transition(key, "erred", stimulus)
        self.scheduler.transitions(follow_up, stimulus)

    def forget(self, net: LeasedNetwork, *, spent: bool = False) -> None:
        """Forget the lease; ``spent`` Dask workers hold a server and can't be used before they restart.

        Two servers share the threads of a process, and a server that expects to be alone there leaves too few.
        """
        net.state = CLOSED
        if self.by_id.pop(net.id, None) is not None:
            unlock(self.scheduler, net.id)
            if spent:
                self.spent.update((address, net.id) for address in net.members if address in self.scheduler.workers)
