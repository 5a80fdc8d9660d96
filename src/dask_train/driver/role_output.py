"""Following what the roles of a run print: each line once, those of ended roles and of earlier attempts included."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from distributed import Client

from dask_train.cluster.peer import Peer
from dask_train.driver.records import ask
from dask_train.errors import DaskTrainError
from dask_train.worker.reading import Part, read_new

# How long one Dask worker is waited for, and how long it is left alone when it has not answered.
WORKER_S = 2.0
LEFT_ALONE_S = 10.0
# How long the agents of a run that is over may take to send their last lines: they end within train.stop.timeout.
LAST_LINES_S = 10.0
# How long one of them is waited for at a time.
LAST_LOOK_S = 1.0


@dataclass(frozen=True)
class OutputLine:
    """A line of a role, without its end."""

    role: str
    rank: int
    text: str

    def __str__(self) -> str:
        return f"[{self.role} {self.rank}] {self.text}"


class OutputReader:
    """Reads the output of a run's roles from any client, further each time.

    Parameters
    ----------
    client
        Of the run's scheduler.
    run
        The whole name of the run.
    role, rank
        Which roles; None for all.

    Attributes
    ----------
    over
        Whether the run has ended; with the next :meth:`read` all its output has been read.
    """

    def __init__(self, client: Client, run: str, role: str | None = None, rank: int | None = None) -> None:
        self.over = False
        self._client, self._run, self._role, self._rank = client, run, role, rank
        self._pieces: dict[tuple[str, int, int], _Piece] = {}
        self._alone: dict[str, float] = {}  # until when a Dask worker that did not answer is not asked
        self._begun = False

    def read(self, *, rest: bool = False) -> list[OutputLine]:
        """Return the lines since the last call; with ``rest``, also what is not a whole line yet."""
        lines: list[OutputLine] = self._client.sync(self._read)
        if rest or self.over:
            lines += [line for key, piece in self._pieces.items() for line in piece.rest(key)]
        return lines

    async def _read(self) -> list[OutputLine]:
        record = await ask(self._client, "train_run_show", run=self._run, output=False)
        self.over = record["status"] != "OK" or bool(record["ended"])
        addresses = {address for _, address in record.get("agents", ())}
        parts, there = await self._parts(addresses)
        if self.over:
            deadline = time.monotonic() + LAST_LINES_S
            while there and time.monotonic() < deadline:
                more, there = await self._parts(there, LAST_LOOK_S)
                parts += more
        # A process that has been replaced is gone from its Dask worker, so its end is on record; that comes first.
        fresh = {part[:3] for part in parts} - set(self._pieces)
        if self.over or not self._begun or any(attempt > 0 for _, _, attempt in fresh):
            record = await ask(self._client, "train_run_show", run=self._run, output=True)
            kept = [tuple(part) for part in record.get("output", ())]
            parts = sorted([*parts, *kept], key=lambda part: part[:4])
        self._begun = True
        return [line for part in parts for line in self._take(part)]

    async def _parts(self, addresses: set[str], last_s: float = 0.0) -> tuple[list[Part], set[str]]:
        """Return what Dask workers tell, and those of them where the run still is."""
        now = time.monotonic()
        due = [address for address in addresses if self._alone.get(address, 0.0) <= now]
        answers = await asyncio.gather(*(self._part(address, last_s) for address in due))
        there = {address for address, answer in zip(due, answers, strict=True) if answer is not None}
        return [part for answer in answers for part in answer or ()], there

    async def _part(self, address: str, last_s: float) -> list[Part] | None:
        positions = [(*key, piece.position) for key, piece in self._pieces.items()]
        try:
            asking = Peer(self._client).on_workers(
                read_new, self._run, positions, last_s, workers=[address], on_error="ignore"
            )
            answers = await asyncio.wait_for(asking, WORKER_S)
        except (DaskTrainError, OSError):  # TimeoutError is one
            self._alone[address] = time.monotonic() + LEFT_ALONE_S
            return None
        parts: Any = answers.get(address)
        return None if parts is None else [tuple(part) for part in parts]

    def _take(self, part: Part) -> list[OutputLine]:
        role, rank, attempt, end, data = part
        if (self._role or role) != role or (rank if self._rank is None else self._rank) != rank:
            return []
        piece = self._pieces.setdefault((role, rank, attempt), _Piece())
        return [OutputLine(role, rank, text) for text in piece.take(end, data)]


class _Piece:
    """The output of one attempt of a role, as far as it has been read."""

    def __init__(self) -> None:
        self.position = 0
        self._rest = b""

    def take(self, end: int, data: bytes) -> list[str]:
        """Return the whole lines that ``data``, which ends at ``end``, adds."""
        if end <= self.position:
            return []
        start = end - len(data)
        lost = start - self.position
        *whole, self._rest = (self._rest + data[max(0, -lost) :]).split(b"\n")
        self.position = end
        gap = [f"(here {lost:,} bytes are missing: not so much is kept)"] if lost > 0 else []
        return gap + [_shown(line) for line in whole]

    def rest(self, key: tuple[str, int, int]) -> list[OutputLine]:
        """Return what is no whole line, if anything."""
        line, self._rest = self._rest, b""
        return [OutputLine(key[0], key[1], _shown(line))] if line else []


def _shown(line: bytes) -> str:
    """As a terminal shows it in the end: a progress bar goes back and writes over itself."""
    states = line.decode(errors="replace").split("\r")
    return next((state for state in reversed(states) if state), "")
