"""Start a fit, or another run of a kind of model: the steps that all kinds share, once and in one order.

Settings, model and rows are checked before a local cluster is started. A few checks come later: those that need the
number of workers where the cluster decides it, and whether a place of checkpoints can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dask_train.arguments import takes
from dask_train.cluster.arrivals import default_fit_workers, default_workers, followed_workers
from dask_train.cluster.clients import client_or_local
from dask_train.driver.settings import DEFAULT, RunSettings
from dask_train.fitting.checks import check_share
from dask_train.fitting.model_kind import FitCall, FitRows, ModelKind
from dask_train.fitting.refusals import check_refusals
from dask_train.fitting.stop_checks import check_stop_names
from dask_train.run.bounds import LEAST, LEAST_WITH_SERVERS, WorkerBounds
from dask_train.run.recovery import check_recovery
from dask_train.trainers.settings import LoopSettings
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import check_replaces, launch


def fit_function(kind: ModelKind) -> Callable[..., Any]:
    """Return the function of ``dt.fit`` for a kind of model, whose signature lists the arguments that it takes."""

    @takes(kind.settings, RunSettings, without=kind.not_taken)
    def fit(model: Any, x: Any = None, y: Any = None, **arguments: Any) -> Any:
        return start_fit(kind, model, x, y, arguments)

    return fit


def start_fit(kind: ModelKind, model: Any, x: Any, y: Any, arguments: Mapping[str, Any]) -> Any:
    """Check a fit, and start its run.

    Parameters
    ----------
    kind
        That of the model.
    model, x, y
        As the user passed them.
    arguments
        Arguments by name: fields of the kind's settings and of :class:`RunSettings`.

    Returns
    -------
    What :func:`dask_train.fit` returns, which also lists what is raised.
    """
    call = _checked(kind, model, x, y, arguments)
    rows = kind.rows(call)
    return started(kind, call, rows, kind.prepared(call, rows))


def started(kind: ModelKind, call: FitCall, rows: FitRows, prepared: Any) -> Any:
    """Start the run of a call whose model and rows are checked.

    Parameters
    ----------
    kind, call
        What is to be done.
    rows, prepared
        As :meth:`ModelKind.rows` and :meth:`ModelKind.prepared` return them.

    Returns
    -------
    What :attr:`FitWork.finish` makes of the run's result, or a handle of the run.
    """
    call, rows = _with_workers(kind, call, rows)
    work = kind.work(call, rows, prepared)
    sizes = kind.size_check(call) if kind.grows else None
    run = replace(call.run, resizes=sizes, one_host=kind.needs_one_host(call))
    start: Any = run_in_process if call.workers == 0 else launch
    return start(
        work.functions,
        kind.roles(call),
        rows.inputs,
        run,
        framework=kind.framework(in_place=call.in_place),
        params=work.params,
        display=work.display,
        finish=work.finish,
    )


def _checked(kind: ModelKind, model: Any, x: Any, y: Any, arguments: Mapping[str, Any]) -> FitCall:
    """Return a call whose settings are checked, by themselves and against the model."""
    arguments = with_bounds(arguments) if kind.grows else arguments
    settings = kind.settings.of(arguments)
    fixed = {"gpus": None} if "gpus" in kind.not_taken else {}
    run = RunSettings.of(arguments, progress=settings.progress, **fixed).named("fit")
    call = FitCall(model=model, x=x, y=y, settings=settings, run=run, workers=kind.workers(model, settings))
    kind.check(call)
    check_refusals(kind, call)
    if isinstance(settings, LoopSettings):
        check_most(run, settings.rows)
    if run.follows is not None:
        kind.check_together(model, settings, run.follows.high)
    check_replaces(run.recovery, kind.framework(in_place=call.in_place))
    run.needs(kind.roles(call))
    check_stop_names(run.stop, validates=settings.validates, known=kind.scores(call), unit=kind.unit)
    kind.check_best(call)
    # Parameter servers, and a scorer, have no loop that knows all scores.
    return call if set(kind.roles(call)) - {"worker"} else replace(call, run=run.with_epoch_rules())


def _with_workers(kind: ModelKind, call: FitCall, rows: FitRows) -> tuple[FitCall, FitRows]:
    """Return a call whose number of workers is known, with the rows as these share them.

    With bounds, or without a number, the cluster decides, and is started if there is none.
    """
    if call.run.follows is not None:
        run = replace(call.run, client=client_or_local(call.run.client, call.workers or 0))
        call = replace(call, run=run, workers=number_to_begin_with(kind, replace(call, run=run)))
    elif call.workers is None:
        run = replace(call.run, client=client_or_local(call.run.client, 0))
        if kind.one_per_dask_worker(call):
            workers = default_workers(run.client, run.on)
        else:
            workers = default_fit_workers(run.client, run.on, run.gpus)
        rows, workers = kind.shared(call, rows, workers)
        call = replace(call, run=run, workers=workers)
    kind.check_together(call.model, call.settings, call.workers or 1)
    return call, rows


def with_bounds(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a fit; if ``workers`` is a pair, with its lower number, and the pair as ``follows``.

    Such a run replaces lost workers in place, also where ``recovery`` was left out; with parameter servers it replaces
    them alone, while the others train on.

    Raises
    ------
    ValueError
        The two numbers are no valid bounds, or ``recovery`` does not go with them.
    """
    workers = arguments.get("workers")
    if not isinstance(workers, tuple | list):
        return dict(arguments)
    scope, least = ("role", LEAST_WITH_SERVERS) if arguments.get("ps") else ("in_place", LEAST)
    bounds, recovery = WorkerBounds.of(workers, least), arguments.get("recovery", DEFAULT)
    policy = check_recovery(scope if recovery == DEFAULT else recovery)
    if policy is None or policy.scope != scope:
        raise ValueError(
            f"workers={tuple(bounds)} needs recovery={scope!r}, and recovery={recovery!r} was passed: workers join "
            "and leave where lost ones are replaced. Leave recovery= out, or pass a single number of workers."
        )
    return {**arguments, "workers": bounds.low, "recovery": policy, "follows": bounds}


def number_to_begin_with(kind: ModelKind, call: FitCall) -> int:
    """Return how many workers a fit that follows begins with: those that find room now, within its bounds.

    Raises
    ------
    PlacementError
        No Dask worker has come within ``train.placement.timeout``.
    """
    run = call.run
    assert run.client is not None
    assert run.follows is not None
    roles = kind.roles(call)
    needs, beside = run.needs(roles).get("worker", {}), sum(roles.values()) - roles["worker"]
    on_one_host = kind.needs_one_host(call)
    return followed_workers(run.client, run.on, needs, run.follows, on_one_host=on_one_host, beside=beside)


def check_most(run: RunSettings, rows: int) -> None:
    """Check that each worker has a row of a global batch, even at the largest number of workers of a fit that follows.

    Raises
    ------
    ValueError
        Batches have too few rows.
    """
    if run.follows is not None:
        check_share(rows, run.follows.high)
