"""Rules to stop by that a training loop asks when an epoch has ended, or what there is in place of epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dask_train.run.stop_rule import EPOCH, RunProgress, StopRule
from dask_train.run.stopping import Patience
from dask_train.trainers.common.score_names import score_name

# They look at scores alone.
_NO_PROGRESS = RunProgress(steps=0, seconds=0.0)


class EpochRules:
    """Rules of which each may end training.

    Parameters
    ----------
    rules
        As :func:`~dask_train.run.stopping.rules_of_epochs` returns them.
    """

    def __init__(self, rules: Sequence[StopRule]) -> None:
        self._rules = tuple(rules)
        # What a rule of patience has seen: it remembers where it was in a list, and looks at what is new.
        self._reports: list[list[dict[str, Any]]] = [[] for _ in self._rules]

    @property
    def names(self) -> frozenset[str]:
        """Return the scores that the rules look at."""
        return frozenset().union(*(rule.names for rule in self._rules))

    def met(self, history: Mapping[str, Sequence[Any]], epochs: Sequence[int]) -> str:
        """Return why training ends, by the scores of all epochs so far; empty if it continues.

        Parameters
        ----------
        history
            By name, a list of scores, the last one of the epoch that has ended.
        epochs
            The numbers of the epochs.
        """
        if not self._rules:
            return ""
        scores = {score_name(name): values for name, values in history.items() if values}
        latest = {name: values[-1] for name, values in scores.items()} | {EPOCH: epochs[-1] if epochs else -1}
        for rule, reports in zip(self._rules, self._reports, strict=True):
            if not isinstance(rule, Patience):
                if scores and (reason := rule.met([latest], _NO_PROGRESS)):
                    return reason
                continue
            num_seen = len(reports)
            reports += [{rule.monitor: value} for value in scores.get(rule.monitor, ())[num_seen:]]
            if len(reports) > num_seen and (reason := rule.met(reports, _NO_PROGRESS, since=len(reports) - 1)):
                return reason
        return ""
