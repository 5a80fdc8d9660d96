"""``fit`` and ``evaluate`` of torch modules: what :func:`dask_train.fit` and its like do with these."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.checkpoint.best import AUTO, mode_by_name
from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.cluster.arrivals import default_fit_workers
from dask_train.cluster.clients import client_or_local
from dask_train.cluster.devices import Gpus, check_gpus
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.config import Deadlines
from dask_train.driver.handle import Run
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.checkpoint_checks import check_best_of_fit
from dask_train.fitting.data import FitData, fit_data, split_off, validation_of
from dask_train.fitting.result import FitResult
from dask_train.fitting.schemas import learnt_for, schema_for
from dask_train.fitting.shown import display_of
from dask_train.fitting.spec import BATCH_SIZE, VALIDATION, InPlace
from dask_train.fitting.torch_module.entry import EvaluationRole, ModuleRole
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining, told_of
from dask_train.frameworks.torch.fitting import TorchFitFramework
from dask_train.logging.log import check_log
from dask_train.report.progress import progress_of
from dask_train.report.rows_progress import RowsDisplay
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule, check_stop
from dask_train.training.by_role import resources_by_role
from dask_train.training.in_process import is_zero, run_in_process
from dask_train.training.launch import DEFAULT, check_start, launch

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def fit_module(  # noqa: PLR0913 - as fit has them
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    loss: Callable[..., Any],
    optimizer: Any,
    scheduler: Callable[[Any], Any] | None = None,
    scheduler_interval: str = "epoch",
    metrics: Mapping[str, Any] | Sequence[Any] | None = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: str | int | bool = "auto",
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool | str = True,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Sequence[int] = 1,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    workers: int | None = None,
    seed: int = 0,
    streaming: bool | int = False,
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    recovery: str | RecoveryPolicy | None = DEFAULT,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    gpus: Gpus = "auto",
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
    log: Any = None,
) -> FitResult | Run[FitResult]:
    """Train a torch module on the Dask cluster that holds the data: the loop that one writes by hand, on many workers.

    All workers train one module: each takes its share of every global batch, the loss is that of the whole global
    batch, and gradients are summed before the optimizer applies them. So the module, its metrics and its history are
    those of a loop in one process, whatever the number of workers, but for the order in which numbers are added up.

    Parameters
    ----------
    model : torch.nn.Module
        Any that can be pickled, or whose class can; it is sent to each worker. Several inputs are its arguments, those
        in a dict by name. Afterwards it holds what was trained, in the tensors that it had. It is trained in training
        mode and validated in evaluation mode, and keeps the mode that it was in.
    x, y, sample_weight
        As :func:`dask_train.fit` takes them. Floats are given to the module in the dtype of its parameters, whole
        numbers among targets as int64. With weights of rows the loss of a batch is the weighted mean of its rows'
        losses, which ``loss`` has to give with ``reduction="none"``, but for targets that are its ``ignore_index``; of
        a loss with ``reduction="sum"``, their weighted sum.
    loss
        A function or an instance of a ``torch.nn`` loss, of the module's outputs and the targets; of the outputs alone
        where there are no targets. It gives one number for a global batch, a mean, a sum or any other.
    optimizer
        What makes an optimizer of a list of parameters: ``torch.optim.Adam``, ``partial(torch.optim.SGD, lr=0.1)``, a
        function. Or an optimizer of the module's own parameters: then training goes on with what that holds, and it
        holds what came of it afterwards, for another ``fit``.
    scheduler
        What makes a scheduler of the optimizer, such as ``partial(torch.optim.lr_scheduler.StepLR, step_size=5)``.
        ``ReduceLROnPlateau`` is given ``val_loss``, or ``loss`` where the epoch was not validated.
    scheduler_interval
        "epoch" for a scheduler that goes on at the end of each epoch, after validation; "step" for one that does so
        with each step.
    metrics
        A dict by name, or a list, of metrics of torchmetrics, and of functions of outputs and targets. They are given
        all rows of each global batch, in the first worker, so they are exact. Of a function the mean over batches is
        taken, weighed by their rows.
    batch_size
        Rows of a global batch, over all workers; 32 where it is None.
    epochs, steps_per_epoch
        How many epochs, and how many batches one has where that is not all of the data. Such an epoch goes on where the
        last one ended, and ends with the data at the latest.
    verbose
        As :func:`dask_train.fit`.
    validation_data, validation_split, validation_batch_size, validation_steps, validation_freq
        As :func:`dask_train.fit`.
    shuffle, features, label, schema, workers, seed, streaming
        As :func:`dask_train.fit`.
    stop
        As :func:`dask_train.fit`; metrics of torchmetrics are looked at when an epoch has ended.
    checkpoint
        As :func:`dask_train.fit`. For ``dt.Checkpoint(best=...)`` of another score than a loss say ``mode=`` as well.
    resume
        Whether to go on with the last whole checkpoint there, if there is one, to the same end to the last bit; with
        the same module, loss, optimizer, scheduler, data and arguments, or it is an error that says what differs. Free
        are ``epochs``, ``workers``, metrics, validation and what concerns the run.
    recovery, on, resources, gpus, client, wait, name, log
        As :func:`dask_train.fit`; a log gets the module's ``state_dict``.

    Returns
    -------
    FitResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be, or the data does not fit the module, its loss or its metrics; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`.

    Notes
    -----
    Dropout draws other numbers in each worker; those of the first one begin with the state of torch's random numbers
    here, as ``torch.manual_seed`` sets it. BatchNorm normalises each worker's share by itself, as in torch's
    DistributedDataParallel; its moving averages are averaged at the end of each epoch. The outputs of the module and
    the targets of each step go to all workers, but for losses of torch's own that are means or sums over rows, without
    metrics: of one worker outputs need one row for each row that goes in.

    Examples
    --------
    >>> result = dt.fit(  # doctest: +SKIP
    ...     module, X, y, loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.Adam, epochs=5, batch_size=128
    ... )
    """
    from dask_train.fitting.torch_module import checkpoints, checks
    from dask_train.fitting.torch_module.result import module_trained

    if in_process := is_zero(workers):
        workers = 1
    module = checks.check_module(model)
    fit_checks.check_counts(
        workers=workers,
        steps_per_epoch=steps_per_epoch,
        validation_steps=validation_steps,
        validation_batch_size=validation_batch_size,
    )
    check_start(name=name, wait=wait)
    check_log(log)
    check_gpus(gpus)
    progress, rule = progress_of(verbose), check_stop(stop)
    kept = check_checkpoint(checkpoint, resume)
    resources_by_role(resources, ["worker"])
    named = checks.named_metrics(metrics)
    like = Conformer(learnt_for(model, schema))
    data = fit_data("data", x, y, sample_weight, features=features, label=label, like=like)
    validation: FitData | None = None
    if validation_data is not None:
        validation = validation_of(validation_data, features, label, sample_weight, data.schema)
    elif validation_split:
        data, validation = split_off(data, validation_split)
    fit_checks.check_stop_names(rule, validates=validation is not None)
    check_best_of_fit(kept, validates=validation is not None, ps=0)
    if kept is not None and kept.best is not None and mode_by_name(kept.best, kept.mode) == AUTO:
        checkpoints.mode_of(module, kept.best)
    checks.check_loss(loss, module)
    checks.check_rows(module, loss, named, data, "The data")
    if validation is not None:
        checks.check_rows(module, loss, named, validation, "The validation data", trains=False)
    made = checks.check_optimizer(optimizer, module)
    scheduled = checks.check_scheduler(scheduler, scheduler_interval, made)
    rows = BATCH_SIZE if batch_size is None else batch_size
    fit_checks.check_order(epochs=epochs, shuffle=shuffle, seed=seed, batch_size=rows, validation_freq=validation_freq)
    if not in_process:
        client = client_or_local(client, workers or 0)
        workers = workers or default_fit_workers(client, on, gpus)
    assert workers is not None
    fit_checks.check_share(rows, workers)
    checks.check_together(module, workers)
    training = ModuleTraining(module=module, loss=loss, optimizer=optimizer, scheduler=scheduler, metrics=named)
    header, arrays = (b"", []) if in_process else checks.sent(training)
    task = ModuleTask(
        header={"training": header},
        arrays=arrays,
        in_place=InPlace(model=training) if in_process else None,
        layout=data.layout,
        validation_layout=None if validation is None else validation.layout,
        epochs=epochs,
        batch_size=rows,
        steps_per_epoch=steps_per_epoch,
        shuffle=shuffle,
        seed=seed,
        random=checks.random_state(),
        validation_batch_size=validation_batch_size or rows,
        validation_steps=validation_steps,
        validation_freq=validation_freq,
        stop_names=frozenset() if rule is None else rule.names,
        checkpoint=kept,
        resume=resume,
        run=uuid.uuid4().hex,
        patience_s=1.5 * Deadlines.from_dask_config().progress_s,  # a stall is told by the run first, with its causes
        by_step=scheduler_interval == checks.STEP,
        configuration={
            **checkpoints.configuration_of(training, made, scheduled, data.layout, data.rows),
            "frame": None if kept is None or data.schema is None else data.schema.to_json(),
        },
    )
    start: Any = run_in_process if in_process else launch
    started: FitResult | Run[FitResult] = start(
        ModuleRole(task),
        roles={"worker": 0 if in_process else workers},
        data={"worker": data.source("data")},
        datasets={} if validation is None else {VALIDATION: validation.source("validation_data")},
        streaming=streaming,
        framework=TorchFitFramework(),
        recovery=recovery,
        stop=rule,
        checkpoint=kept,
        resume=resume,
        on=on,
        resources=resources,
        gpus=gpus,
        client=client,
        wait=wait,
        name=name or "fit",
        progress=progress,
        log=log,
        params=told_of(task),
        display=partial(display_of, verbose, epochs),
        finish=partial(module_trained, model=model, module=module, optimizer=optimizer, schema=data.schema),
    )
    return started


def evaluate_module(  # noqa: PLR0913 - as evaluate has them
    model: Any,
    x: Any,
    y: Any = None,
    *,
    loss: Callable[..., Any],
    metrics: Mapping[str, Any] | Sequence[Any] | None = None,
    sample_weight: Any = None,
    batch_size: int = 256,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    verbose: str | int | bool = "auto",
    workers: int | None = None,
    client: Client | None = None,
) -> dict[str, float]:
    """How good a torch module is on all rows of a Dask collection, as one process finds it in the same batches.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode; it keeps the mode that it is in.
    x, y, sample_weight, features, label
        As :func:`fit_module` takes them.
    schema
        As :func:`dask_train.predict`.
    loss, metrics
        As :func:`fit_module` takes them. The loss is the mean of those of the batches, weighed by their rows.
    batch_size
        Rows of a batch, over all workers.
    verbose, client
        As :func:`dask_train.fit`.
    workers
        How many share the rows; where it is None as many as of ``fit``.

    Returns
    -------
    dict of str to float
        ``loss``, and metrics by name. An awaitable with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be, or the data does not fit the module, its loss or its metrics; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        As :func:`dask_train.train`.
    """
    from dask_train.fitting.torch_module import checks
    from dask_train.fitting.torch_module.result import evaluated

    module = checks.check_module(model)
    fit_checks.check_counts(workers=workers, batch_size=batch_size)
    progress, named = progress_of(verbose), checks.named_metrics(metrics)
    like = Conformer(schema_for(model, schema), learns=False)
    data = fit_data("data", x, y, sample_weight, features=features, label=label, like=like)
    checks.check_loss(loss, module)
    checks.check_rows(module, loss, named, data, "The data", trains=False)
    source = data.source("data")
    client = client_or_local(client, workers or 0)
    workers = workers or default_fit_workers(client, None)
    header, arrays = checks.sent(ModuleTraining(module=module, loss=loss, metrics=named))
    task = ModuleTask(
        header={"training": header},
        arrays=arrays,
        layout=data.layout,
        validation_layout=data.layout,
        validation_batch_size=batch_size,
        random=checks.random_state(),
        patience_s=1.5 * Deadlines.from_dask_config().progress_s,
    )
    found: dict[str, float] = launch(
        EvaluationRole(task),
        roles={"worker": workers},
        data={"worker": source},
        framework=TorchFitFramework(),
        client=client,
        name="evaluate",
        progress=progress,
        display=partial(RowsDisplay, rows=source.num_rows, batch_size=batch_size),
        finish=evaluated,
    )
    return found
