"""A value that changes, and waiters for its change; used at both ends, so without anything of dask-train."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False)
class Watched:
    """Something that changes again and again.

    Attributes
    ----------
    changed
        Set with the next change, and then another one: a waiter checks again, and misses none that comes after
        its look.
    """

    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def wake(self) -> None:
        """Wake all waiters for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


async def changed_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Return whether ``event`` was set within ``timeout_s`` seconds."""
    if event.is_set():  # which wait_for does not look at where there is no time
        return True
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
