"""Progress of a run, while its end is awaited: roles, scores, rates.

Knows nothing of Dask: the waiting code passes the run's status, a few times a second.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from dask_train.cards import Card, CardTable, in_notebook
from dask_train.printing import SafeFile
from dask_train.report.charts import Curves
from dask_train.report.display import FIRST_LINE_S, Display, facts_of
from dask_train.report.fitted import LineField
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.rates import RATE_OVER_S, SlowestRole, rate_field

# Of more roles than this a notebook's table counts them by role and phase.
MOST_ROLES = 12
# What a score carries besides the values that were reported.
_RESERVED = frozenset({"role", "rank", "attempt", "time"})


def check_progress(progress: object, *, waits: bool) -> bool | None:
    """Return what ``progress`` means: None shows it in terminals and notebooks, True elsewhere, too.

    Parameters
    ----------
    progress
        As the user gave it; what ``verbose`` means there, with Keras.
    waits
        Whether code will wait for the run, and can draw.

    Raises
    ------
    TypeError, ValueError
        It is neither None nor a bool; it is True if no code waits.
    """
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; pass True, False, or None (shown in terminals and notebooks).")
    if progress and not waits:
        raise ValueError(
            "Progress is shown while a verb waits. With wait=False, or an asynchronous client, leave progress= (or "
            "verbose=) out, and ask the run's status()."
        )
    return progress


def progress_of(verbose: Any) -> bool | None:
    """Return what Keras' ``verbose`` means as ``progress``.

    Raises
    ------
    ValueError
        It is not one of "auto", 0, 1 and 2.
    """
    if not (verbose == "auto" or (isinstance(verbose, int) and verbose in (0, 1, 2))):
        raise ValueError(f"verbose is {verbose!r}; it is 'auto', 0, 1 or 2.")
    return None if verbose == "auto" else bool(verbose)


def estimators_progress() -> bool | None:
    """Return ``progress`` of an estimator's own ``fit``, which searches call in threads and child processes, too.

    Those may write into a log, and would draw over each other in a terminal.
    """
    is_alone = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    return None if is_alone or not (SafeFile(sys.stderr).isatty() or in_notebook()) else False


class RunDisplay(Display):
    """Shows a run's progress; as :class:`~dask_train.report.display.Display`.

    Parameters
    ----------
    progress
        Whether to.
    **settings
        As there.
    """

    # What a score has besides values.
    _place = _RESERVED

    def __init__(self, progress: bool | None = None, **settings: Any) -> None:
        self._status: Mapping[str, Any] = {}
        self._counts: deque[tuple[float, int, int, int]] = deque()
        self._slowest = SlowestRole()
        self._curves = Curves()
        super().__init__(progress, **settings)

    # What the second of the rates counts.
    _counted = "batches"

    def update(self, status: Mapping[str, Any]) -> None:
        """Show how the run is, unless that was done just now.

        Parameters
        ----------
        status
            As ``Run.status()``, whose roles may have ``num_rows``, with ``num_alive`` (how many roles there are),
            ``training`` (the names of the roles
            whose scores count), ``last_scores`` (triples of role, rank and score), and perhaps ``scores`` (all) and
            ``seconds`` (since the run began).
        """
        now = self._clock()
        self._status = status
        training = [role for role in status["roles"] if role["role"] in status["training"]]
        batches, rows = (sum(role.get(name, 0) for role in training) for name in ("num_batches", "num_rows"))
        self._counts.append((now, status["num_scores"], batches, rows))
        while now - self._counts[0][0] > RATE_OVER_S:
            self._counts.popleft()
        self._slowest.update(now, status)
        self._draw()

    # What is drawn

    def _in_log(self) -> list[str]:
        """Return the lines for a log, in which other runs may write theirs: each begins with the run's name."""
        run = self._wording.writable(str(self._status.get("run", "")))
        return [f"{run}: {line}" if run else line for line in super()._in_log()]

    def _below(self) -> list[str]:
        return [f"waiting: {self._status['waiting']}"] if self._status.get("waiting") else []

    def _card(self) -> Card:
        status = self._status
        self._curves.take(status.get("scores", ()))
        below = [("waiting", status["waiting"])] if status.get("waiting") else []
        ended = [("ended", status["outcome"])] if status.get("outcome") else []
        tables = [roles_table(status["roles"])] if status.get("roles") else []
        return Card(
            kind=str(status.get("run", "")),
            name=self._phase(),
            facts=[*facts_of(self._fields()), *below, *ended],
            tables=tables,
            charts=self._curves.svgs(),
            done=self._share_done(),
        )

    def _share_done(self) -> float | None:
        """Return the share from 0 to 1; None if it is unknown."""
        return None

    def _phase(self) -> str:
        return str(self._status.get("phase", "starting"))

    def _is_over(self) -> bool:
        return self._phase() == "over"

    def _fields(self) -> list[LineField]:
        """Return the figures in the order in which they are read; what is not known yet is left out."""
        status = self._status
        elapsed_s = status.get("seconds", self._clock() - self._begun)
        fields = [LineField(0, self._phase(), self._phase())]
        if (roles := status.get("roles")) and not self._is_over():
            alive = f"{status['num_alive']} of {len(roles)}"
            fields.append(LineField(3, f"{alive} roles", alive.replace(" of ", "/")))
        fields += self._score_fields()
        for rank, rate, unit in zip((6, 5, 4), self.rates(), ("scores", self._counted, "rows"), strict=True):
            if rate > 0:
                fields.append(rate_field(rank, rate, unit))
        if (slowest := self._slowest.field()) is not None:
            fields.append(slowest)
        fields.append(LineField(1, seconds_text(elapsed_s), f"{elapsed_s:.0f} s"))
        return fields

    def _score_fields(self) -> list[LineField]:
        """Return the latest score of the training roles, then that of another role."""
        scores = sorted(self._status.get("last_scores", ()), key=lambda entry: entry[2]["time"], reverse=True)
        training = self._status.get("training", ())
        fields = []
        for rank, inside in ((2, True), (5, False)):
            entry = next((entry for entry in scores if (entry[0] in training) is inside), None)
            values = {} if entry is None else _numbers(entry[2], self._place)
            text = "  ".join(f"{name} {score_text(value)}" for name, value in values.items())
            brief = "  ".join(f"{name} {value:.3g}" for name, value in list(values.items())[:1])
            if entry is not None and text:
                before = "" if inside else f"{entry[0]} "
                fields.append(LineField(rank, before + text, before + brief))
        return fields

    def rates(self) -> tuple[float, float, float]:
        """Return scores, batches and rows per second over the last seconds; 0 before a second has passed."""
        if not self._counts:
            return 0.0, 0.0, 0.0
        (since, *before), (now, *after) = self._counts[0], self._counts[-1]
        if now - since < 1.0:
            return 0.0, 0.0, 0.0
        # A role that starts again counts its batches from 0.
        scores, batches, rows = (max(0, b - a) / (now - since) for a, b in zip(before, after, strict=True))
        return scores, batches, rows


class EstimatorDisplay(RunDisplay):
    """As :class:`RunDisplay` for an estimator's own ``fit``: a notebook has no card of each of many short ones."""

    _first_s = FIRST_LINE_S


def _numbers(score: Mapping[str, Any], place: frozenset[str]) -> dict[str, float]:
    return {
        name: value
        for name, value in score.items()
        if name not in place and isinstance(value, int | float) and not isinstance(value, bool)
    }


def roles_table(roles: list[Mapping[str, Any]]) -> CardTable:
    """Where each role is and what it does, as ``Run.status()`` has them; of many roles, how many are in which phase."""
    title = f"{len(roles)} role{'' if len(roles) == 1 else 's'}"
    if len(roles) > MOST_ROLES:
        counts = Counter((role["role"], str(role.get("phase", ""))) for role in roles)
        counted = [(*of, f"{count:,}") for of, count in sorted(counts.items())]
        return CardTable(columns=("role", "phase", "roles"), rows=counted, title=title)
    names = ("role", "rank", "phase", "attempt", "address", "doing", "num_batches")
    rows = [tuple(str(role.get(name, "")) for name in names) for role in roles]
    return CardTable(
        columns=("role", "rank", "phase", "attempt", "Dask worker", "doing", "batches"), rows=rows, title=title
    )
