"""Searches and their trials, from what the runs that train them note and report. Columns for bokeh; no bokeh here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .tables import columns_of, value_text

SEARCH_COLUMNS = ("search", "trials", "scored", "metric", "best", "of trial", "with")
LINE_COLUMNS = ("xs", "ys", "colour", "width", "alpha", "label")
POINT_COLUMNS = ("trial", "value", "best", "label")
# Of more searches the last ones are kept, and of more trials of one the first.
MOST_SEARCHES = 20
MOST_TRIALS = 1000
# Of more parameters the first ones have an axis.
MOST_AXES = 12


@dataclass
class Trial:
    """One trial: which run trains it, with which parameters."""

    run: str
    params: dict[str, Any]


@dataclass
class Search:
    """The trials of a search, by number; ``mode`` is "min" or "max"."""

    name: str
    metric: str
    mode: str
    trials: dict[int, Trial] = field(default_factory=dict)


class Searches(dict[str, Search]):
    """The last searches, by name."""

    def tell(self, run: str, trials: Sequence[Mapping[str, Any]]) -> None:
        """Take over the trials that a run was handed last; a trial that another run has begun again is that one's."""
        for trial in trials:
            search = self.setdefault(trial["search"], Search(trial["search"], trial["metric"], trial["mode"]))
            number = trial["number"]
            if number in search.trials or len(search.trials) < MOST_TRIALS:
                search.trials[number] = Trial(run, dict(trial["params"]))
        while len(self) > MOST_SEARCHES:
            del self[next(iter(self))]


def value_of(search: Search, number: int, traces: Mapping[str, Any]) -> float | None:
    """Return the best value of a trial so far; None before it has one."""
    trace = traces.get(search.trials[number].run)
    bounds = None if trace is None else trace.trial_bounds.get((number, search.metric))
    return None if bounds is None else bounds[search.mode == "max"]


def best_of(search: Search, values: Mapping[int, float]) -> int | None:
    """Return the number of the best trial so far."""
    sign = -1.0 if search.mode == "max" else 1.0
    return min(values, key=lambda number: sign * values[number], default=None)


def values_of(search: Search, traces: Mapping[str, Any]) -> dict[int, float]:
    """Return the values of those trials that have one, by number."""
    values = {number: value_of(search, number, traces) for number in sorted(search.trials)}
    return {number: value for number, value in values.items() if value is not None}


def searches_table(searches: Mapping[str, Search], traces: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the searches, the newest first."""
    rows = []
    for search in reversed(list(searches.values())):
        values = values_of(search, traces)
        best = best_of(search, values)
        of_best = ("", "", "") if best is None else (value_text(values[best]), best, _params(search, best))
        rows.append((search.name, len(search.trials), len(values), search.metric, *of_best))
    return columns_of(SEARCH_COLUMNS, rows)


def best_so_far(search: Search, values: Mapping[int, float]) -> dict[str, list[Any]]:
    """Return the value of each trial, and the best one up to it."""
    rows: list[tuple[Any, ...]] = []
    choose = max if search.mode == "max" else min
    for number, value in values.items():
        best = choose(value, rows[-1][2]) if rows else value
        rows.append((number, value, best, _label(search, number, value)))
    return columns_of(POINT_COLUMNS, rows)


@dataclass(frozen=True)
class Axis:
    """An axis of parallel coordinates: a number's range, or all that a parameter was."""

    name: str
    values: tuple[Any, ...]

    @property
    def is_number(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) for value in self.values)

    def place(self, value: Any) -> float:
        """Return where a value lies on it, from 0 to 1."""
        first, last = (min(self.values), max(self.values)) if self.is_number else (0, len(self.values) - 1)
        at = value if self.is_number else self.values.index(value)
        return (at - first) / (last - first) if last != first else 0.5

    def words(self) -> str:
        """Return the name of the axis and its range, as its label."""
        if not self.is_number:
            return f"{self.name}: {', '.join(map(str, self.values))[:40]}"
        first, last = min(self.values), max(self.values)
        return f"{self.name}: {value_text(first)} to {value_text(last)}"


def axes_of(search: Search, values: Mapping[int, float]) -> list[Axis]:
    """Return an axis for each parameter, and the last one for the value."""
    names = list(dict.fromkeys(name for trial in search.trials.values() for name in trial.params))[:MOST_AXES]
    axes = []
    for name in names:
        tried = [search.trials[number].params[name] for number in values if name in search.trials[number].params]
        if tried:
            axes.append(Axis(name, tuple(dict.fromkeys(tried))))
    return [*axes, Axis(search.metric, tuple(values.values()))] if values else []


def parallel_lines(search: Search, values: Mapping[int, float], axes: Sequence[Axis]) -> dict[str, list[Any]]:
    """Return a line for each trial that has a value, the best one last; a parameter that it lacks is a gap."""
    best = best_of(search, values)
    rows = []
    for number in sorted(values, key=lambda number: number == best):
        params = search.trials[number].params  # one of them may be called as the metric is
        places = [axis.place(params[axis.name]) if axis.name in params else math.nan for axis in axes[:-1]]
        places.append(axes[-1].place(values[number]))
        look = ("#d55e00", 3, 1.0) if number == best else ("#0072b2", 1, 0.45)
        rows.append((list(map(float, range(len(axes)))), places, *look, _label(search, number, values[number])))
    return columns_of(LINE_COLUMNS, rows)


def _label(search: Search, number: int, value: float) -> str:
    return f"trial {number}: {search.metric} {value_text(value)}; {_params(search, number)}"


def _params(search: Search, number: int) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in search.trials[number].params.items())
