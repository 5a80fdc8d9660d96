"""How a run is checked and started; what the public verbs share."""

from __future__ import annotations

import inspect
import os
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.checkpoint.best import mode_by_name
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.arrivals import default_workers
from dask_train.cluster.clients import client_or_local
from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.config import Deadlines, TemplateSettings, logging_timeout_s
from dask_train.driver.following import follow
from dask_train.driver.handle import Run
from dask_train.driver.job import Job
from dask_train.driver.loop import Driver
from dask_train.driver.notebook import Cell, remember, runs_before, this_cell
from dask_train.driver.preflight import check_checkpoints, check_modules, packed, pickled
from dask_train.driver.settings import RunInputs, RunSettings, RunSources
from dask_train.frameworks.base import TRAINING_ROLES, Framework
from dask_train.frameworks.registry import find_framework
from dask_train.logging.log import Log
from dask_train.process.launch import Preload
from dask_train.report.progress import RunDisplay, check_progress
from dask_train.role.refusals import Refusing
from dask_train.roles import check_jobs
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import RunPlan
from dask_train.settings.process import Settings
from dask_train.shared_data.budget import RoleMemory, check_budget, tell_of_second_copies
from dask_train.shared_data.run_data import RunData
from dask_train.shared_data.segments import SharedSegments
from dask_train.spelling import by_caller
from dask_train.stores import place_anywhere

if TYPE_CHECKING:
    from dask_train.driver.result import Result
    from dask_train.role.session import Session


def launch(
    function: Callable[[Session], Any] | Mapping[str, Callable[[Session], Any]],
    roles: Mapping[str, int] | None,
    inputs: RunInputs,
    run: RunSettings,
    *,
    framework: str | Framework | None = None,
    finish: Callable[[Result], Any] | None = None,
    display: Callable[[bool | None], Any] = RunDisplay,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Check and start a run on the cluster.

    Parameters
    ----------
    function, roles, framework
        As :func:`dask_train.train` takes them.
    inputs
        Data of the roles.
    run
        Settings.
    finish
        Makes of the run's result what the verb returns. Default: the result itself.
    display
        Shows the run while this waits.
    params
        More parameters for the loggers, besides the roles and the framework.

    Returns
    -------
    What ``finish`` makes, or a Run where ``run.wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid; nothing has been started.
    """
    settings = Settings.here()
    adapter = find_framework(framework)
    check_replaces(run.recovery, adapter)
    functions = functions_of(function)
    counts = None if roles is None else check_jobs(roles, {}, "roles")
    given_roles = counts or functions
    needs = run.needs(list(given_roles))
    sources = inputs.opened(given_roles)
    log_s = logging_timeout_s()
    client = client_or_local(run.client, sum((counts or {}).values()))
    peer = Peer(client)
    check_progress(run.progress, waits=run.wait and not peer.asynchronous)
    counts = counts or {role: default_workers(client, run.on) if role == "worker" else 1 for role in functions}
    check_roles(counts, functions, sources.by_role, adapter)
    if peer.asynchronous or not run.wait:
        sources = sources.snapshot()
    for role in counts:
        if role not in functions:
            functions[role] = adapter.default_role(role)
    once = {id(functions[role]): packed(f"function of role {role!r}", functions[role]) for role in counts}
    sent = {role: once[id(functions[role])] for role in counts}  # one object for roles of one function travels once
    defaults = {role for role in counts if functions[role] is adapter.default_role(role)}
    job = Job(
        plan=plan_of(counts, sources, adapter, run.recovery, defaults, one_host=run.one_host),
        functions=sent,
        names={role: named_of(functions[role]) for role in counts},
        framework=adapter,
        run=run,
        needs=needs,
        **of_job(run, functions, counts),
        settings=settings,
        preload=_preload(adapter),
        client_s=Deadlines.from_dask_config().client_s,
        params={**counts, "framework": adapter.name, **(params or {})},
        refuses=next((each.refuses for each in functions.values() if isinstance(each, Refusing)), None),
    )
    pickled("framework", adapter)  # an adapter of the user's own that can't travel is seen here
    cell = this_cell()
    sent_to = Log(run.log, job.started(), log_s) if run.log else None

    def begun() -> Run[Any]:
        data = RunData(peer, sources.by_role, run.window, sources.named)
        driver = Driver(peer, job, data, beside=[] if run.follows is None else [follow])
        if sent_to is not None:
            driver.history.log_to(sent_to)
        begun = Run(driver, finish, display)
        remember(cell, begun)
        return begun

    checks = partial(_check, peer, job, cell, sources, run.window)
    if peer.asynchronous:
        return _start_async(checks, begun, wait=run.wait)
    peer.run(checks)
    started = begun()
    if not run.wait:
        return started
    try:
        with display(run.progress) as shown:
            return started.result(watch=shown.update if shown.shown else None)
    except BaseException as error:  # also one that comes just before, or after, the wait
        started.end_for(error)
        raise


async def _start_async(checks: Callable[[], Any], begun: Callable[[], Run[Any]], *, wait: bool) -> Any:
    await checks()
    run = begun()
    if not wait:
        return run
    try:
        return await run.result()
    except BaseException:  # cancelled: no one else knows of the run
        run.stop_soon("its caller waits no longer")
        raise


async def _check(peer: Peer, job: Job, cell: Cell | None, sources: RunSources, window: int | None) -> None:
    await ensure_plugin(peer)
    named = sources.named
    whole = named if window is not None else {**sources.by_role, **{f"datasets {name}": named[name] for name in named}}
    new = {role: source for role, source in whole.items() if not isinstance(source, SharedSegments)}
    if new:
        sizes = {role: source.nbytes for role, source in new.items() if source.nbytes is not None}
        await check_budget(
            peer, sizes, RoleMemory.of(job.framework, sum(job.plan.counts.values())), streams=window is not None
        )
        tell_of_second_copies({role: source.persisted_nbytes for role, source in new.items()})
    await check_modules(peer, job.functions, job.run.on)
    await check_checkpoints(peer, job.checkpoint, job.run.on)
    for old in runs_before(cell):
        await old.replaced()


def of_job(run: RunSettings, functions: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """Return what the settings of a run say of its job: a name that is drawn, and the checkpoints.

    Raises
    ------
    ValueError
        Checkpoints would end with the process.
    """
    name = f"{run.name or run_name_of(functions, counts)}-{uuid.uuid4().hex[:6]}"
    checkpoint = run.checkpoint
    return {
        "id": name,
        "checkpoint": None if checkpoint is None else place_of(checkpoint, name, run.resume),
    }


def place_of(checkpoint: Checkpoint, run: str, resume: bool) -> CheckpointPlace:
    """Return where a run of that name keeps checkpoints.

    Raises
    ------
    ValueError
        It ends with the process.
    """
    name = os.fspath(checkpoint.url)
    if name.startswith("memory:"):
        raise ValueError(
            f"checkpoint is {name!r}, which lies in the memory of one process and goes with it. Pass a folder that all "
            "hosts share, or a URL of a store."
        )
    return CheckpointPlace(
        url=place_anywhere(name),
        run=run,
        began=time.time(),
        resume=resume,
        every_steps=checkpoint.every_steps,
        every_s=checkpoint.every_s,
        keep=checkpoint.keep,
        best=checkpoint.best,
        mode=mode_by_name(checkpoint.best, checkpoint.mode),
        storage_options=checkpoint.storage_options,
    )


def functions_of(function: Any) -> dict[str, Any]:
    """Return what each role does, by role, as a new dict.

    Raises
    ------
    TypeError, ValueError
        There is no function, or one can't be called.
    """
    if not isinstance(function, Mapping):
        function = {"worker": function}
    for role, each in function.items():
        if not callable(each):
            raise TypeError(f"The function of role {role!r} is {each!r}; pass something that takes a session.")
        _check_takes_session(role, each)
    if not function:
        raise ValueError("train was given no function; pass one, or a dict of them by role.")
    return dict(function)


def _check_takes_session(role: str, function: Any) -> None:
    """Check that a function can be called with one argument, as far as its signature is known.

    Raises
    ------
    TypeError
        It can't.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"The function of role {role!r}, {name}{signature}, is called with a session and nothing else: {error}. "
            "Let it take one argument, the session; functools.partial gives it others."
        ) from None


def check_roles(
    counts: Mapping[str, int], functions: Mapping[str, Any], columns: Mapping[str, Any], adapter: Framework
) -> None:
    """Check that functions, data and roles belong together, and that the framework can serve such roles.

    Raises
    ------
    ValueError
        They do not, or it can't.
    """
    missing = [role for role in counts if role not in functions and adapter.default_role(role) is None]
    if missing:
        pass_it = by_caller(f"Pass {{{missing[0]!r}: function}}.", f"Pass --role {missing[0]}=MODULE:FUNCTION.")
        raise ValueError(f"Role {missing[0]!r} has no function, and no default. {pass_it}")
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


def check_replaces(policy: RecoveryPolicy | None, adapter: Framework) -> None:
    """Check that lost roles can be replaced in place, or all continue from memory, where that is asked for.

    Raises
    ------
    ValueError
        They can't.
    """
    can_be = adapter.replaces_in_place or adapter.keeps_state
    if policy is not None and policy.scope == "in_place" and not can_be:
        raise ValueError(
            "recovery='in_place' is for dt.fit of torch modules, Keras models, linear models and boosted trees, and "
            f"this run is of framework {adapter.name!r}. Leave recovery= out: then all start again, from the last "
            "checkpoint."
        )


def _preload(adapter: Framework) -> Preload | None:
    """Return what templates of the run's role processes import."""
    if not adapter.imports:
        return None
    template = TemplateSettings.from_dask_config()
    modules = template.imported(adapter.imports)
    return Preload(modules=modules, environment=adapter.import_environment, idle_s=template.idle_s)


def plan_of(
    counts: dict[str, int],
    sources: RunSources,
    adapter: Framework,
    policy: RecoveryPolicy | None,
    services: set[str],
    *,
    one_host: bool = False,
) -> RunPlan:
    """Return what the course of a run depends on."""
    deadlines = Deadlines.from_dask_config()
    own = [role for role in counts if role not in services]  # with functions of the user's
    training = [role for role in TRAINING_ROLES if role in counts] or [role for role in own if role != "ps"] or own
    agree = adapter.agrees_every_step(counts)
    replaceable = [role for role in counts if adapter.can_replace(role) and not (agree and role in training)]
    return RunPlan(
        counts=counts,
        training=frozenset(training),
        services=frozenset(services),
        with_data=frozenset(sources.by_role),
        replaceable=frozenset(replaceable),
        agree=agree,
        in_place=agree and adapter.replaces_in_place,
        one_host=one_host,
        needs_agents=not adapter.rows_are_known,
        recovery=policy,
        placement_s=deadlines.placement_s,
        launch_s=deadlines.launch_s,
        rendezvous_s=deadlines.rendezvous_s,
        progress_s=deadlines.progress_s,
        stop_s=deadlines.stop_s,
    )


def run_name_of(functions: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """Return what the id of a run begins with that was given no name."""
    role = next((role for role in (*TRAINING_ROLES, *counts) if role in functions and role in counts), "worker")
    return (
        "".join(c if c.isascii() and c.isalnum() else "-" for c in named_of(functions[role])[:40]).strip("-") or "train"
    )


def named_of(function: Any) -> str:
    """Return what the user called a function."""
    return str(getattr(function, "__name__", type(function).__name__))
