"""How a run is checked and started; what the public verbs share."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask_train.cluster.budget import check_budget, tell_of_second_copies
from dask_train.cluster.driver import Driver, Job
from dask_train.cluster.extension import ensure_plugin
from dask_train.cluster.local import client_or_local
from dask_train.cluster.notebook import Cell, remember, runs_before, this_cell
from dask_train.cluster.peer import Peer
from dask_train.cluster.preflight import check_modules, pickled
from dask_train.cluster.published import as_source
from dask_train.cluster.run import Run
from dask_train.cluster.run_data import RunData
from dask_train.cluster.shared_segments import SharedSegments
from dask_train.cluster.streaming import check_streaming
from dask_train.collections.source import Source
from dask_train.config import Deadlines
from dask_train.frameworks.base import TRAINING_ROLES, Framework
from dask_train.frameworks.registry import find_framework
from dask_train.report.progress import RunDisplay, check_progress
from dask_train.roles import check_jobs
from dask_train.run.recovery import RecoveryPolicy, check_recovery
from dask_train.run.state import RunPlan
from dask_train.run.stopping import StopRule, check_stop

if TYPE_CHECKING:
    from distributed import Client

    from dask_train.result import Result
    from dask_train.session import Session

DEFAULT = "default"

_Data = Mapping[str, Source | SharedSegments]


def launch(  # noqa: PLR0913 - one keyword for each thing that a run can be told
    function: Callable[[Session], Any] | Mapping[str, Callable[[Session], Any]],
    *,
    roles: Mapping[str, int] | None = None,
    data: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    streaming: bool | int = False,
    datasets: Mapping[str, Any] | None = None,
    framework: str | Framework | None = None,
    recovery: str | RecoveryPolicy | None = DEFAULT,
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
    progress: bool | None = None,
    finish: Callable[[Result], Any] | None = None,
    display: Callable[[bool | None], RunDisplay] = RunDisplay,
    runs_on_host: int = 1,
) -> Any:
    """As :func:`dask_train.train`; ``finish`` makes of the run's result what the verb returns, ``display`` shows it.

    With ``runs_on_host`` so many runs like this one share the cores of each host.
    """
    adapter = find_framework(framework)
    functions = _functions(function)
    rule = check_stop(stop)
    policy = None if recovery == DEFAULT else check_recovery(recovery)
    if on is not None and (isinstance(on, str) or not on):
        raise ValueError(f"on is {on!r}; pass a list of Dask workers' addresses, or leave it out.")
    counts = None if roles is None else check_jobs(roles, {})
    columns = _data(data, functions, features, label)
    named = {name: _source(f"datasets[{name!r}]", value) for name, value in (datasets or {}).items()}
    window = check_streaming(streaming)
    client = client_or_local(client, sum((counts or {}).values()))
    peer = Peer(client)
    check_progress(progress, waits=wait and not peer.asynchronous)
    counts = counts or _default_counts(peer, functions, on)
    _check_roles(counts, functions, columns, adapter)
    if recovery == DEFAULT:
        policy = RecoveryPolicy(scope="gang" if adapter.agrees_every_step(counts) else "role")
    for role in counts:
        if role not in functions:
            functions[role] = adapter.default_role(role)
    once = {id(functions[role]): pickled(f"function of role {role!r}", functions[role]) for role in counts}
    sent = {role: once[id(functions[role])] for role in counts}  # one object for roles of one function travels once
    job = Job(
        id=f"{name or _name(functions, counts)}-{uuid.uuid4().hex[:6]}",
        plan=_plan(
            counts, columns, adapter, policy, {role for role in counts if _is_default(adapter, functions, role)}
        ),
        functions=sent,
        names={role: _named(functions[role]) for role in counts},
        framework=adapter,
        needs=_needs(resources, counts),
        on=None if on is None else list(on),
        stop=rule,
        checkpoint=_checkpoint(checkpoint),
        runs_on_host=runs_on_host,
    )
    pickled("framework", adapter)  # an adapter of the user's own that can't travel is seen here
    cell = this_cell()
    if peer.asynchronous:
        return _start_async(peer, job, columns, window, named, wait, cell, finish)
    peer.run(_check, peer, job, cell, columns, window, named)
    run = Run(Driver(peer, job, RunData(peer, columns, window, named)), finish)
    remember(cell, run)
    if not wait:
        return run
    with display(progress) as shown:
        return run.result(watch=shown.update if shown.shown else None)


async def _start_async(
    peer: Peer,
    job: Job,
    columns: _Data,
    window: int | None,
    named: _Data,
    wait: bool,
    cell: Cell | None,
    finish: Callable[[Result], Any] | None,
) -> Any:
    await _check(peer, job, cell, columns, window, named)
    run = Run(Driver(peer, job, RunData(peer, columns, window, named)), finish)
    remember(cell, run)
    return await run.result() if wait else run


async def _check(peer: Peer, job: Job, cell: Cell | None, columns: _Data, window: int | None, named: _Data) -> None:
    await ensure_plugin(peer)
    whole = named if window is not None else {**columns, **{f"datasets {name}": named[name] for name in named}}
    new = {role: source for role, source in whole.items() if not isinstance(source, SharedSegments)}
    if new:
        sizes = {role: source.nbytes for role, source in new.items() if source.nbytes is not None}
        await check_budget(peer, sizes, sum(job.plan.counts.values()), job.framework.role_bytes)
        tell_of_second_copies({role: source.persisted_nbytes for role, source in new.items()})
    await check_modules(peer, job.functions, job.on)
    for old in runs_before(cell):
        await old.replaced()


def _checkpoint(place: Any) -> str | None:
    if place is None:
        return None
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise ValueError(f"checkpoint is {place!r}; pass a folder or a URL.")
    name = os.fspath(place)
    if name.startswith("memory:"):
        raise ValueError(
            f"checkpoint is {name!r}, which lies in the memory of one process and goes with it. Pass a folder that all "
            "hosts share, or a URL of a store."
        )
    return name if "://" in name else os.path.abspath(name)


def _functions(function: Any) -> dict[str, Any]:
    if not isinstance(function, Mapping):
        function = {"worker": function}
    for role, each in function.items():
        if not callable(each):
            raise TypeError(f"The function of role {role!r} is {each!r}; pass something that takes a session.")
    if not function:
        raise ValueError("train was given no function; pass one, or a dict of them by role.")
    return dict(function)


def _data(
    data: Any, functions: Mapping[str, Any], features: str | Sequence[str] | None, label: str | None
) -> dict[str, Source | SharedSegments]:
    if data is None:
        return {}
    by_role = data if isinstance(data, Mapping) and set(data) <= {*functions, "worker", "chief", "scorer"} else None
    if by_role is None:
        by_role = {"worker": data}
    return {role: _source(f"data[{role!r}]", value, features, label) for role, value in by_role.items()}


def _source(
    what: str, value: Any, features: str | Sequence[str] | None = None, label: str | None = None
) -> Source | SharedSegments:
    if isinstance(value, Source | SharedSegments):  # a verb has looked at it
        return value
    return as_source(what, value, features=features, label=label)


def _default_counts(peer: Peer, functions: Mapping[str, Any], on: Sequence[str] | None) -> dict[str, int]:
    info = peer.dask_end.scheduler_info(n_workers=-1)
    num_workers = len(on) if on is not None else max(1, len(info["workers"]))
    return {role: num_workers if role == "worker" else 1 for role in functions}


def _check_roles(
    counts: Mapping[str, int], functions: Mapping[str, Any], columns: Mapping[str, Any], adapter: Framework
) -> None:
    missing = [role for role in counts if role not in functions and adapter.default_role(role) is None]
    if missing:
        raise ValueError(f"Role {missing[0]!r} has no function, and no default. Pass {{{missing[0]!r}: function}}.")
    for what, named in (("function", functions), ("data", columns)):
        unused = [role for role in named if role not in counts]
        if unused:
            have = ", ".join(f"{role}={count}" for role, count in counts.items())
            raise ValueError(
                f"There is {what} for role {unused[0]!r}, which the run does not have: its roles are {have}."
            )
    if all(role not in functions for role in counts):
        raise ValueError("All roles have only their defaults, so nothing would ever end the run.")
    adapter.check(counts)


def _is_default(adapter: Framework, functions: Mapping[str, Any], role: str) -> bool:
    return functions[role] is adapter.default_role(role)


def _plan(
    counts: dict[str, int],
    columns: Mapping[str, Any],
    adapter: Framework,
    policy: RecoveryPolicy | None,
    services: set[str],
) -> RunPlan:
    deadlines = Deadlines.from_dask_config()
    training = [role for role in TRAINING_ROLES if role in counts] or [role for role in counts if role not in services]
    agree = adapter.agrees_every_step(counts)
    replaceable = [role for role in counts if adapter.can_replace(role) and not (agree and role in training)]
    return RunPlan(
        counts=counts,
        training=frozenset(training),
        services=frozenset(services),
        with_data=frozenset(columns),
        replaceable=frozenset(replaceable),
        agree=agree,
        recovery=policy,
        placement_s=deadlines.placement_s,
        launch_s=deadlines.launch_s,
        rendezvous_s=deadlines.rendezvous_s,
        progress_s=deadlines.progress_s,
        stop_s=deadlines.stop_s,
    )


def _needs(resources: Mapping[str, Any] | None, counts: Mapping[str, int]) -> dict[str, dict[str, float]]:
    if not resources:
        return {}
    by_role = all(isinstance(value, Mapping) for value in resources.values())
    if by_role and (unknown := [role for role in resources if role not in counts]):
        raise ValueError(f"resources names role {unknown[0]!r}, which the run does not have.")
    flat = {} if by_role else {role: resources for role in counts if role != "ps"}
    needs: dict[str, dict[str, float]] = {}
    for role, wanted in (resources if by_role else flat).items():
        for name, amount in wanted.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                raise ValueError(f"resources asks for {name}={amount!r}; an amount is a number from 0.")
        needs[role] = {name: float(amount) for name, amount in wanted.items()}
    return needs


def _name(functions: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    role = next((role for role in (*TRAINING_ROLES, *counts) if role in functions and role in counts), "worker")
    return "".join(c if c.isalnum() else "-" for c in _named(functions[role])).strip("-") or "train"


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
