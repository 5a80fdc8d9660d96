"""What ``fit`` returns: the result of its run, and the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dask_train.data.account import Stretch
from dask_train.data.ledger import Ledger, Line, balance
from dask_train.fit_report import figure_of, write_page
from dask_train.fit_roles.task import Outcome
from dask_train.result import Result


@dataclass(frozen=True, kw_only=True)
class FitResult(Result):
    """What ``fit`` returns.

    Attributes
    ----------
    model : keras.Model
        The trained model, the very object that was passed: with its weights, optimizer state and ``history``.
    history
        As ``History.history`` of Keras: a list for each metric, of one value an epoch.
    epoch
        The numbers of those epochs.
    agreeing_s
        Seconds that the first worker has spent on sums with the others, and on waiting for them in these.
    waiting_s
        The latter alone, for workers of its host: how much more even the workers could be.
    """

    model: Any = field(repr=False)
    history: dict[str, list[Any]]
    epoch: list[int]
    agreeing_s: float
    waiting_s: float

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a page about the run: curves, who worked where and when, the last of each metric, the ledger.

        Returns
        -------
        Path
            The HTML file, which needs no other; what was there before is replaced.
        """
        return write_page(self, path)

    def plot(self) -> Any:
        """A ``matplotlib.figure.Figure`` of the history, each metric over epochs."""
        return figure_of(self)


def trained(result: Result, model: Any, callbacks: Sequence[Any]) -> FitResult:
    """The result of a run of ``fit``; the user's model and callbacks take over what was trained.

    Where the run was ended before its first worker could tell, they stay as they are, and the history is empty.
    """
    from dask_train.fit_roles.sent_callbacks import take_states
    from dask_train.frameworks.keras.serialization import load_parts

    outcome: Outcome | None = result.results["worker"][0]
    known = {each.name: getattr(result, each.name) for each in fields(Result)}
    if outcome is None:
        known["results"] = {}
        return FitResult(model=model, history={}, epoch=[], agreeing_s=0.0, waiting_s=0.0, **known)
    model = load_parts(model, outcome.header, outcome.arrays)
    take_states(callbacks, outcome.callbacks)
    known.update(results={}, ledger=_training(result.ledger, outcome))
    return FitResult(
        model=model,
        history=outcome.history,
        epoch=outcome.epoch,
        agreeing_s=outcome.agreeing_s,
        waiting_s=outcome.waiting_s,
        **known,
    )


def _training(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The rows that the model was trained on, also before it was resumed; those of validation are left out."""
    lines = [line for line in ledger.lines if line.role == "worker" and line.dataset == 0]
    # A worker that was killed may have brought a batch that it did not come back from, and a Dask worker that was lost
    # takes the accounts of its roles with it: what has gone into the weights is known all the same.
    applied = {(line.rank, line.epoch): line for line in _lines(outcome, outcome.applied)}
    for place, line in enumerate(lines):
        known = applied.pop((line.rank, line.epoch), None)
        rows = 0 if known is None else known.trained
        lines[place] = replace(line, trained=rows, read=max(line.read, rows))
    lines += applied.values()
    for _, size, by_rank in outcome.read:
        lines += _lines(outcome, by_rank, size)
    return Ledger.of_lines(lines, lambda _: outcome.num_rows)


def _lines(outcome: Outcome, by_rank: dict[int, list[Stretch]], size: int | None = None) -> tuple[Line, ...]:
    """What workers have trained on, as lines of a ledger; of as many workers as are named where no size is given."""
    accounts = {("worker", rank): [stretches] for rank, stretches in by_rank.items()}
    counts, rows = {"worker": size or len(by_rank)}, {("worker", 0): outcome.num_rows}
    return balance(accounts, counts, rows).lines
