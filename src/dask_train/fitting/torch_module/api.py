"""``fit`` and ``evaluate`` of torch modules: what :func:`dask_train.fit` and its like do with these."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from dask_train.arguments import takes
from dask_train.checkpoint.best import AUTO, mode_by_name
from dask_train.cluster.arrivals import default_fit_workers
from dask_train.cluster.clients import client_or_local
from dask_train.collections.schema.conformer import Conformer
from dask_train.driver.handle import Run
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.data import FitData, check_some_rows, fit_data, inputs_of, split_off, validation_of
from dask_train.fitting.following import check_most, number_to_begin_with, with_bounds
from dask_train.fitting.result import FitResult
from dask_train.fitting.schemas import learnt_for, schema_for
from dask_train.fitting.settings import of_run
from dask_train.fitting.stop_checks import check_stop_names
from dask_train.fitting.torch_module.entry import EvaluationRole, ModuleRole
from dask_train.fitting.torch_module.settings import ModuleEvaluation, ModuleSettings
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining, told_of
from dask_train.frameworks.torch.fitting import TorchFitFramework
from dask_train.report.progress import progress_of
from dask_train.report.rows_progress import RowsDisplay
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import launch
from dask_train.training.settings import RunInputs, RunSettings


@takes(ModuleSettings, RunSettings)
def fit_module(model: Any, x: Any = None, y: Any = None, **given: Any) -> FitResult | Run[FitResult]:
    """Train a torch module on the Dask cluster that holds the data: the loop that one writes by hand, on many workers.

    All workers train one module: each takes its share of every global batch, the loss is that of the whole global
    batch, and gradients are summed before the optimizer applies them. So the module, its metrics and its history are
    those of a loop in one process, whatever the number of workers, except for the order in which numbers are added up.

    Parameters
    ----------
    model : torch.nn.Module
        Any that can be pickled, or whose class can; it is sent to each worker. One of ``torch.compile`` is trained
        without its compiled code, and a notice says so. Several inputs are its arguments, those
        in a dict by name. Afterwards it holds what was trained, in the tensors that it had. It is trained in training
        mode and validated in evaluation mode, and keeps the mode that it was in.
    x, y
        As :func:`dask_train.fit` takes them. Floats are given to the module in the dtype of its parameters, whole
        numbers among targets as int64.
    **given
        Fields of :class:`ModuleSettings` and :class:`~dask_train.training.settings.RunSettings`. With
        ``sample_weight`` the loss of a batch is the weighted mean of its rows' losses, which ``loss`` has to give with
        ``reduction="none"``, except targets that are its ``ignore_index``; of a loss with ``reduction="sum"``, their
        weighted sum. ``stop`` looks at metrics of torchmetrics when an epoch has ended. For
        ``dt.Checkpoint(best=...)`` of another score than a loss say ``mode=`` as well. What resumes comes to the same
        end to the last bit; ``epochs``, ``workers``, metrics, validation and what concerns the run may change. A log
        gets the module's ``state_dict``.

    Returns
    -------
    FitResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, or the data does not fit the module, its loss or its metrics; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`.

    Notes
    -----
    Dropout draws other numbers in each worker; those of the first one begin with the state of torch's random numbers
    here, as ``torch.manual_seed`` sets it. BatchNorm normalises each worker's share by itself, as in torch's
    DistributedDataParallel; its moving averages are averaged at the end of each epoch. The outputs of the module and
    the targets of each step go to all workers, except losses of torch that are means or sums over rows, without
    metrics: of one worker outputs need one row for each row that goes in.

    Examples
    --------
    >>> result = dt.fit(
    ...     module, X, y, loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.Adam, epochs=5, batch_size=128
    ... )
    """
    from dask_train.fitting.torch_module import checkpoints, checks
    from dask_train.fitting.torch_module.prepared import PreparedModule
    from dask_train.fitting.torch_module.result import module_trained

    given = with_bounds(given)
    settings = ModuleSettings.of(given)
    run = RunSettings.of(given, progress=settings.progress).named("fit")
    module = checks.check_module(model)
    run.needs(["worker"])
    check_most(run, settings.rows)
    metrics = checks.named_metrics(settings.metrics)
    like = Conformer(learnt_for(model, settings.schema))
    columns: dict[str, Any] = {"features": settings.features, "label": settings.label}
    data = fit_data("data", x, y, settings.sample_weight, **columns, like=like)
    validation: FitData | None = None
    if settings.validation_data is not None:
        validation = validation_of(
            settings.validation_data, settings.features, settings.label, settings.sample_weight, data.schema
        )
    elif settings.validation_split:
        data, validation = split_off(data, settings.validation_split)
    check_stop_names(run.stop, validates=validation is not None, known=checks.scores_of(metrics))
    kept = run.checkpoint
    fit_checks.check_best_of_fit(kept, validates=validation is not None, ps=0)
    if kept is not None and kept.best is not None and mode_by_name(kept.best, kept.mode) == AUTO:
        checkpoints.mode_of(module, kept.best)
    prepared = PreparedModule.checked(model, settings, data, validation)
    inputs = inputs_of(data, validation)
    workers = 1 if settings.in_process else settings.workers
    if not settings.in_process:
        run = replace(run, client=client_or_local(run.client, workers or 0))
        workers = number_to_begin_with(run, workers) or default_fit_workers(run.client, run.on, run.gpus)
    assert workers is not None
    run = replace(run, resizes=partial(fit_checks.check_share, settings.rows))
    task = prepared.task(workers, of_run(run))
    start: Any = run_in_process if settings.in_process else launch
    started: FitResult | Run[FitResult] = start(
        ModuleRole(task),
        {"worker": 0 if settings.in_process else workers},
        inputs,
        run,
        framework=TorchFitFramework(in_place=run.recovery is not None and run.recovery.scope == "in_place"),
        params=told_of(task),
        display=settings.display,
        finish=partial(module_trained, model=model, module=module, optimizer=settings.optimizer, schema=data.schema),
    )
    return started


@takes(ModuleEvaluation)
def evaluate_module(model: Any, x: Any, y: Any = None, **given: Any) -> dict[str, float]:
    """Evaluate a torch module on all rows of a Dask collection, as one process does in the same batches.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode; it keeps the mode that it is in.
    x, y
        As :func:`fit_module` takes them.
    **given
        Fields of :class:`ModuleEvaluation`.

    Returns
    -------
    dict of str to float
        ``loss``, and metrics by name. An awaitable with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, or the data does not fit the module, its loss or its metrics; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        As :func:`dask_train.train`.
    """
    from dask_train.fitting.torch_module import checks
    from dask_train.fitting.torch_module.result import evaluated

    settings = ModuleEvaluation.of(given)
    module, loss = checks.check_module(model), settings.loss
    metrics = checks.named_metrics(settings.metrics)
    like = Conformer(schema_for(model, settings.schema), learns=False)
    columns: dict[str, Any] = {"features": settings.features, "label": settings.label}
    data = fit_data("data", x, y, settings.sample_weight, **columns, like=like, trains=False)
    checks.check_loss(loss, module)
    checks.check_rows(module, loss, metrics, data, "The data", trains=False)
    check_some_rows("The data", source := data.source("data"))
    client = client_or_local(settings.client, settings.workers or 0)
    workers = settings.workers or default_fit_workers(client, None)
    header, arrays = checks.sent(ModuleTraining(module=module, loss=loss, metrics=metrics))
    run = RunSettings(client=client, gpus=None, name="evaluate", progress=progress_of(settings.verbose))
    task = ModuleTask(
        header={"training": header},
        arrays=arrays,
        columns=data.columns,
        validation_columns=data.columns,
        validation_batch_size=settings.batch_size,
        random=checks.random_state(),
        **of_run(run),
    )
    found: dict[str, float] = launch(
        EvaluationRole(task),
        {"worker": workers},
        RunInputs(data={"worker": source}),
        run,
        framework=TorchFitFramework(),
        display=partial(RowsDisplay, rows=source.num_rows, batch_size=settings.batch_size),
        finish=evaluated,
    )
    return found
