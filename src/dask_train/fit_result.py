"""What ``fit`` returns: the result of its run, and the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dask_train.data.ledger import Ledger, balance
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
    """

    model: Any = field(repr=False)
    history: dict[str, list[Any]]
    epoch: list[int]
    agreeing_s: float

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
    """The result of a run of ``fit``; the user's model and callbacks take over what was trained."""
    from dask_train.fit_roles.sent_callbacks import take_states
    from dask_train.frameworks.keras.serialization import load_parts

    outcome: Outcome = result.results["worker"][0]
    model = load_parts(model, outcome.header, outcome.arrays)
    take_states(callbacks, outcome.callbacks)
    known = {each.name: getattr(result, each.name) for each in fields(Result)}
    known.update(results={}, ledger=_training(result.ledger, outcome))
    return FitResult(model=model, history=outcome.history, epoch=outcome.epoch, agreeing_s=outcome.agreeing_s, **known)


def _training(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The rows that the model was trained on, also before it was resumed; those of validation are left out."""
    lines = [line for line in ledger.lines if line.role == "worker" and line.dataset == 0]
    for _, size, by_rank in outcome.read:
        accounts = {("worker", rank): [stretches] for rank, stretches in by_rank.items()}
        lines += balance(accounts, {"worker": size}, {("worker", 0): outcome.num_rows}).lines
    return Ledger.of_lines(lines, lambda _: outcome.num_rows)
