"""What a run leaves: values without a connection to the cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from dask_train.cards import Card, CardMixin, CardTable
from dask_train.data.ledger import Ledger
from dask_train.report.account import MetricCurves, figure_of, reported, write_page
from dask_train.report.charts import Curves
from dask_train.report.formats import score_text, seconds_text
from dask_train.scores import CurveNames


@dataclass(kw_only=True, repr=False)
class Attempt(CardMixin):
    """One launch: of the whole gang, or of the roles that a loss had taken.

    Attributes
    ----------
    number
        0 for the first.
    started, ended
        Seconds since the epoch; ``ended`` is 0 while it runs.
    places
        Addresses of Dask workers, by ``role/rank``; for an attempt that replaces roles, theirs.
    joined
        When roles got these that joined the run while it trained, in seconds since the epoch, by ``role/rank``.
    left
        When roles left the run, as the number of workers was changed, in seconds since the epoch, by ``role/rank``.
    reason
        Why it ended.
    """

    number: int
    started: float
    ended: float = 0.0
    places: dict[str, str] = field(default_factory=dict)
    joined: dict[str, float] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    def _card(self) -> Card:
        took = _took(self) or "still running"
        rows = [tuple(place) for place in self.places.items()]
        facts = [("", took), ("", f"{len(rows)} role{'' if len(rows) == 1 else 's'}"), *_where_there(ended=self.reason)]
        tables = [CardTable(columns=("role", "Dask worker"), rows=rows, title="places")] if rows else []
        return Card(kind="Attempt", name=f"{self.number}", facts=facts, tables=tables, one_line=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunAccount(CardMixin):
    """What every run leaves.

    Attributes
    ----------
    scores
        All scores, in the order in which they arrived: what was reported, plus role, rank, attempt and time.
    ledger
        The account of the rows that roles were given: ``ledger.read``, ``.trained``, ``.repeated``, ``.dropped`` and
        ``.table`` by epoch, role and rank. What a role did on a Dask worker that died is not in it, unless it is in a
        checkpoint that the role resumed from.
    attempts
        Every launch.
    stop_reason
        Why the run was stopped; empty if its training roles have simply returned.
    run_id
        The name of the run, as ``dask train list`` shows it.
    notices
        What was out of the ordinary and has not ended the run, such as a damaged checkpoint that was passed over, or a
        scorer that was lost, or had to be ended, after the training roles had returned.
    """

    scores: list[dict[str, Any]] = field(repr=False)
    ledger: Ledger
    attempts: list[Attempt]
    stop_reason: str
    run_id: str
    notices: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return the seconds from when the run was asked for until it ended."""
        return max(0.0, self.attempts[-1].ended - self.attempts[0].started) if self.attempts else 0.0

    def report(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Path | str:
        """Write a page about the run: curves, who worked where and when, the last of each metric, the ledger.

        Parameters
        ----------
        path
            Where to write it: a file, or a URL of any file system of fsspec.
        storage_options
            Keywords for the file system of a URL, such as credentials. Never shown. Default: what the environment says.

        Returns
        -------
        Path or str
            The HTML file, which needs no other, or its URL; what was there before is replaced.

        Raises
        ------
        ValueError
            A store can't be written to.
        ImportError
            matplotlib is not installed.
        """
        return write_page(self, self._model_name(), self._metrics(), path, storage_options)

    def plot(self) -> Any:
        """Return a ``matplotlib.figure.Figure`` of the history, each metric in a chart; a notebook shows it.

        Returns
        -------
        matplotlib.figure.Figure
            Over epochs, rounds, steps of a solver, or reports. Not bound to any window.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        return figure_of(self._metrics())

    def _model_name(self) -> str:
        """Return what a page calls that which was trained."""
        return self.run_id

    def _metrics(self) -> MetricCurves:
        """Return what is drawn."""
        return MetricCurves.of_reports(reported(self.scores))

    def _save(self, folder: Path) -> Iterator[Path]:
        """Write what the run has left into a folder: the ledger, as JSON. Yields each file once it is whole."""
        path = folder / "ledger.json"
        lines = [asdict(line) for line in self.ledger.lines]
        totals = {name: getattr(self.ledger, name) for name in ("read", "trained", "repeated", "dropped")}
        path.write_text(json.dumps({**totals, "lines": lines}, indent=1))
        yield path

    def _trained(self) -> Any:
        """Return the model that the run has trained; None if it has none, or did not come to train it."""
        return None

    def _example(self) -> Any:
        """Return a row of zeros as the model takes it; None if that is not known."""
        return None

    def _values(self) -> list[tuple[str, str]]:
        """Return what counts most of the run's values, as names and texts."""
        names, last = CurveNames(), dict[str, float]()
        for score in self.scores:
            last = names.values(score) or last
        return [(name, score_text(value)) for name, value in last.items()]

    def _curves(self) -> Curves:
        curves = Curves()
        curves.take(self.scores)
        return curves

    def _card(self) -> Card:
        ledger, attempts = self.ledger, self.attempts
        rows = [
            f"{getattr(ledger, name):,} {name}" for name in ("trained", "repeated", "dropped") if getattr(ledger, name)
        ]
        placed = [
            (f"{each.number}", strftime("%H:%M:%S", localtime(each.started)), _took(each), each.reason)
            for each in attempts
        ]
        return Card(
            kind=type(self).__name__,
            name=self.run_id,
            facts=[
                *self._values(),
                *_where_there(ended=self.stop_reason, rows=", ".join(rows)),
                ("took", seconds_text(self.seconds) + (f", in {len(attempts)} attempts" if len(attempts) > 1 else "")),
                *(("notice", notice) for notice in self.notices),
            ],
            charts=self._curves().svgs(),
            tables=[
                *(replace(table, title=f"ledger: {table.title}") for table in ledger._card().tables),
                *(
                    [CardTable(columns=("", "started", "took", "ended"), rows=placed, title="attempts")]
                    if len(placed) > 1
                    else []
                ),
            ],
        )


def _took(attempt: Attempt) -> str:
    return seconds_text(max(0.0, attempt.ended - attempt.started)) if attempt.ended else ""


def _where_there(**facts: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in facts.items() if value]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(RunAccount):
    """Result of ``train``: what its functions returned, and what every run leaves.

    Attributes
    ----------
    results
        What each role's function returned, by role and rank; None for a role that was ended before it returned.
    scores, ledger, attempts, stop_reason, run_id, notices
        As of every run: all scores in the order in which they arrived; the account of rows (``.read``, ``.trained``,
        ``.repeated``, ``.dropped``, ``.table``); every launch; why it was stopped, if it was; its name; and what was
        out of the ordinary.
    """

    results: dict[str, list[Any]]

    @property
    def history(self) -> dict[str, list[float]]:
        """Return the numbers that the first rank of each role has reported, in order: a list for each name."""
        return reported(self.scores)

    if not TYPE_CHECKING:  # where it would hide other names that there are not

        def __getattr__(self, name: str) -> Any:
            """Name the attributes that other results have."""
            hints = {
                "model": "it is what a function returns, as in result.results['worker'][0]",
                "save": "save the model that a function returns, as in result.results['worker'][0]",
            }
            hint = f": {hints[name]}" if name in hints else ""
            raise AttributeError(f"A Result of dt.train has no attribute {name!r}{hint}.", name=name, obj=self)

    def _values(self) -> list[tuple[str, str]]:
        roles = ", ".join(f"{len(ranks)} {role}" for role, ranks in self.results.items())
        return [("results of", roles), *super()._values()]


def leave_result(error: BaseException, result: Any) -> None:
    """Let an exception that has ended a verb carry what there was by then, as its attribute ``result``."""
    with suppress(AttributeError):  # of a class that can't have the attribute
        error.result = result  # type: ignore[attr-defined]
