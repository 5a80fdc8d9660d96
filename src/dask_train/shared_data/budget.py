"""Whether a run's data fits into the cluster's memory; asked before anything is computed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dask.utils import format_bytes
from distributed.comm import get_address_host

from dask_train.cluster.peer import Peer
from dask_train.config import TemplateSettings, memory_limit
from dask_train.errors import DataError
from dask_train.frameworks.base import Framework
from dask_train.printing import say
from dask_train.process.templates import name_of
from dask_train.worker.room import Room, room

# How long Dask workers may take to say what they can take.
ROOM_S = 10.0


@dataclass(frozen=True, kw_only=True)
class RoleMemory:
    """What the role processes of a run will take.

    Attributes
    ----------
    num_roles, role_bytes
        How many there will be, and what one takes for itself.
    shared_bytes, template
        How much of that lies in the template of its Dask worker, taken once there, and how that is called; 0 and empty
        without templates.
    """

    num_roles: int
    role_bytes: int
    shared_bytes: int = 0
    template: str = ""

    @classmethod
    def of(cls, framework: Framework, num_roles: int) -> Self:
        """Return what that many roles with a framework will take, with templates if ``train.template.idle`` says so."""
        template = TemplateSettings.from_dask_config()
        if not framework.imports or not template.idle_s:
            return cls(num_roles=num_roles, role_bytes=framework.role_bytes)
        return cls(
            num_roles=num_roles,
            role_bytes=framework.role_bytes,
            shared_bytes=framework.shared_bytes,
            template=name_of(template.imported(framework.imports)),
        )

    def on(self, num_workers: int) -> int:
        """Return all of it on that many Dask workers, of which each with a role has a template."""
        num_templates = min(self.num_roles, num_workers) if self.template else 0
        return self.num_roles * (self.role_bytes - self.shared_bytes) + num_templates * self.shared_bytes


async def check_budget(peer: Peer, sizes: Mapping[str, int], roles: RoleMemory, *, streams: bool = False) -> None:
    """Refuse data that can't fit into the Dask workers; where some are yet to come, they see to it themselves.

    Parameters
    ----------
    peer
        The client.
    sizes
        Bytes of the data of each role, where known.
    roles
        What the role processes will take.
    streams
        Whether the data that roles train on is streamed, and so none of this.

    Raises
    ------
    DataError
        It is more than what the Dask workers and their containers can take.
    """
    needed = sum(sizes.values())
    limit = memory_limit()
    if not needed:
        return
    try:
        asking = peer.on_workers(room, limit, on_error="ignore")
        rooms: dict[str, Room] = await asyncio.wait_for(asking, ROOM_S)
    except TimeoutError:  # one of them is busy; what it can't take it will refuse
        return
    if len(rooms) < max(1, _num_planned(peer)):
        return
    by_host: dict[str, list[Room]] = {}
    for address, each in rooms.items():
        by_host.setdefault(get_address_host(address), []).append(each)
    available = 0
    for of_host in by_host.values():
        # It is counted with the roles; a limit that is set is of data alone.
        there = [_template(each, roles.template) for each in of_host] if limit is None else []
        once = sum(dict(there).values())  # in the container, where Dask workers share it
        left = [each.left + once for each in of_host if each.left is not None]
        available += min([sum(each.bytes for each in of_host) + sum(size for _, size in there), *left])
    own = roles.on(len(rooms)) if limit is None else 0
    if needed > max(0, available - own):
        of_roles = f", less {format_bytes(own)} for {roles.num_roles} role processes" if own else ""
        beside = " besides what is streamed" if streams else ""
        raise DataError(
            f"The run's data{beside} takes {format_bytes(needed)} ({_by_role(sizes)}), and {len(rooms)} Dask "
            f"workers can take {format_bytes(available)}{of_roles}.",
            "That is what their memory limits leave before Dask writes results to disk, or what is left of their "
            "containers' limits."
            if limit is None
            else f"train.memory.limit is {format_bytes(limit)} a Dask worker.",
            ("Pass less of it" if streams else "Pass streaming=True")
            + ", use smaller dtypes, free what is persisted, add Dask workers (where some are yet to come, "
            "client.wait_for_workers), or set train.memory.limit.",
        )


def _template(each: Room, name: str) -> tuple[int, int]:
    """Return the process of a Dask worker's template, and what it takes; zeros for none."""
    return each.template_pids.get(name, 0), each.templates.get(name, 0)


def _num_planned(peer: Peer) -> int:
    """Return how many Dask workers the cluster that the client has started will have, as far as it tells."""
    return len(getattr(peer.dask_end.cluster, "plan", ()))


def tell_of_second_copies(persisted: Mapping[str, int | None]) -> None:
    """Say which data will lie in memory twice.

    Parameters
    ----------
    persisted
        By role, how many bytes of the user's collection lie in Dask's memory already; None: some do.
    """
    for role, size in persisted.items():
        if size is None or size:
            much = "is persisted" if size is None else f"is persisted ({format_bytes(size)})"
            say(
                f"data[{role!r}] {much}, and its rows are copied into shared memory besides. For arrays, "
                "dask_train.persist in place of persist, of all in one call, makes that the only copy."
            )


def _by_role(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{role}: {format_bytes(size)}" for role, size in sizes.items())
