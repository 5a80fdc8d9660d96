"""What a run leaves: values without a connection to the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dask_train.data.ledger import Ledger


@dataclass(kw_only=True)
class Attempt:
    """One launch: of the whole gang, or of the roles that a loss had taken.

    Attributes
    ----------
    number
        0 for the first.
    started, ended
        Seconds since the epoch; ``ended`` is 0 while it goes on.
    places
        Addresses of Dask workers, by ``role/rank``; for an attempt that replaces roles, theirs.
    reason
        Why it ended.
    """

    number: int
    started: float
    ended: float = 0.0
    places: dict[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What ``train`` returns.

    Attributes
    ----------
    results
        What each role's function returned, by role and rank; None for a role that was ended before it returned.
    scores
        All scores, in the order in which they arrived: what was reported, plus role, rank, attempt and time.
    ledger
        The account of the rows that roles were given: ``ledger.read``, ``.trained``, ``.repeated``, ``.dropped`` and
        ``.table`` by epoch, role and rank. What a role did on a Dask worker that died is not in it.
    attempts
        Every launch.
    stop_reason
        Why the run was stopped; empty where its training roles have simply returned.
    run_id
        The name of the run, as ``dask train list`` shows it.
    """

    results: dict[str, list[Any]]
    scores: list[dict[str, Any]] = field(repr=False)
    ledger: Ledger
    attempts: list[Attempt]
    stop_reason: str
    run_id: str
