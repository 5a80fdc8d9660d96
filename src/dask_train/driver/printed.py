"""Output of the roles of a run, for its handle: the last part of each, also of those that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from dask_train.cluster.peer import POLL_S
from dask_train.driver.loop import Driver
from dask_train.errors import DaskTrainError
from dask_train.run.commands import Key
from dask_train.run.state import ALIVE
from dask_train.worker.reading import Part, read_new

# How long the scheduler may take to return what roles have printed; later, errors are raised without it.
OUTPUT_S = 10.0


class Printed:
    """What roles have printed, fetched on demand.

    Parameters
    ----------
    driver
        Of the run.

    Attributes
    ----------
    texts
        By role, as it was fetched last.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.texts: dict[Key, str] = {}

    def keys(self, role: str | None, rank: int | None) -> list[Key]:
        """Return the roles that are meant.

        Raises
        ------
        ValueError
            The run has none of them.
        """
        plan = self._driver.state.plan
        keys = [key for key in plan.role_keys() if key[0] == (role or key[0])]
        keys = [key for key in keys if rank is None or key[1] == rank]
        if not keys:
            counts = ", ".join(f"{name}={count}" for name, count in plan.counts.items())
            raise ValueError(f"There is no role {role!r} {'' if rank is None else rank} in this run; it has {counts}.")
        return keys

    async def logs(self, keys: list[Key], prefixed: bool) -> str:
        """Return what these have printed; each line with its role in front, or one role's as it printed it."""
        await self.fetch()
        driver = self._driver
        roles = {key: driver.state.roles[key] for key in keys}
        alive = {key: role.address for key, role in roles.items() if role.phase in ALIVE and role.address}
        if alive and not driver.over:
            with suppress(DaskTrainError, OSError):  # TimeoutError is one
                where = list(set(alive.values()))
                asking = driver.peer.on_workers(read_new, driver.job.id, [], workers=where, on_error="ignore")
                answers = await asyncio.wait_for(asking, POLL_S)
                self._take(part for parts in answers.values() for part in parts or () if part[:2] in alive)
        texts = {key: self.texts.get(key, "") for key in keys}
        if not prefixed:
            return texts[keys[0]]
        return "".join(
            f"[{role} {rank}] {line}\n" for (role, rank), text in texts.items() for line in text.splitlines()
        )

    async def fetch(self) -> None:
        """Take over what the scheduler has of it, if it answers."""
        with suppress(DaskTrainError, TimeoutError):
            asking = self._driver.peer.ask("train_run_show", run=self._driver.job.id, output=True)
            answer = await asyncio.wait_for(asking, OUTPUT_S)
            self._take(answer.get("output", ()))

    def _take(self, parts: Iterable[Part]) -> None:
        """Keep what roles have printed; the last attempt's part comes last."""
        for role, rank, _, _, data in parts:
            self.texts[role, rank] = data.decode(errors="replace")
