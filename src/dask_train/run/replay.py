"""A run's event log as plain values, and the way back: a run that failed somewhere replays anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from dask_train.run import commands, events, messages
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import RunPlan, RunState
from dask_train.run.transitions import begin, step

_KINDS = {**vars(messages), **vars(events), **vars(commands)}


def to_record(
    first: RunState, log: Iterable[tuple[events.Event, tuple[commands.Command, ...]]]
) -> list[dict[str, Any]]:
    """Plain values, one line each: the plan and the start, then every event with the commands that it led to."""
    plan = asdict(first.plan)
    lines = [{"plan": {name: _plain(value) for name, value in plan.items()}, "time": first.since}]
    for event, todo in log:
        then = [_named(command) for command in todo]
        lines.append({"time": event.time, "of": event.of, "event": _named(event.what), "commands": then})
    return lines


def replay(lines: Sequence[dict[str, Any]]) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Go through a record again: for each event what was done then, and what is done now."""
    plan = dict(lines[0]["plan"])
    for name in ("training", "services", "with_data", "replaceable"):
        plan[name] = frozenset(plan[name])
    if plan["recovery"] is not None:
        plan["recovery"] = RecoveryPolicy(**plan["recovery"])
    state, _ = begin(RunPlan(**plan), lines[0]["time"])
    compared = []
    for line in lines[1:]:
        of = None if line["of"] is None else messages.RoleProcess(*line["of"])
        state, todo = step(state, events.Event(line["time"], _made(line["event"]), of))
        then = [_named(_made(each)) for each in line["commands"]]  # one recorded may have fewer fields
        compared.append((then, [_named(command) for command in todo]))
    return compared


def _named(value: Any) -> dict[str, Any]:
    assert is_dataclass(value)
    return {"is": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.repr}}


def _plain(value: Any) -> Any:
    if isinstance(value, messages.Message):
        return _named(value)
    if isinstance(value, tuple | list | frozenset):
        items = [_plain(item) for item in value]
        return sorted(items) if isinstance(value, frozenset) else items
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, commands.Verdict) else value


def _made(plain: dict[str, Any]) -> Any:
    values = {name: _made(value) if name == "message" else _tuples(value) for name, value in plain.items()}
    return _KINDS[values.pop("is")](**values)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
