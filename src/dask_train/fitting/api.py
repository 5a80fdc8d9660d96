"""``fit``: a compiled Keras model, trained on a Dask collection by many workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.cluster.arrivals import default_fit_workers, default_workers
from dask_train.cluster.clients import client_or_local
from dask_train.cluster.devices import Gpus
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.handle import Run
from dask_train.fitting import checks as fit_checks
from dask_train.fitting import server_checks
from dask_train.fitting.data import FitData, columns_for, fit_data, inputs_of, split_off, validation_of
from dask_train.fitting.following import check_most, number_to_begin_with, with_bounds
from dask_train.fitting.kinds import FIT_BY_CLASS, by_kind_of_model
from dask_train.fitting.logged import params_of
from dask_train.fitting.loss_trial import check_losses
from dask_train.fitting.replacement_checks import check_replaced
from dask_train.fitting.result import FitResult, trained
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.settings import (
    KerasKeywords,
    KerasSettings,
    LightGBMKeywords,
    ModuleKeywords,
    XGBoostKeywords,
    of_run,
)
from dask_train.fitting.spec import FitTask, InPlace
from dask_train.fitting.stop_checks import check_stop_names, scores_of_model
from dask_train.fitting.torch_module.settings import ModuleSettings
from dask_train.fitting.trees.settings import LightGBMSettings, XGBoostSettings
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.frameworks.registry import find_framework
from dask_train.input_errors import raises_at_the_call
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import launch
from dask_train.training.settings import DEFAULT, RunSettings

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[True] = True, **settings: Unpack[KerasKeywords]
) -> FitResult: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[False], **settings: Unpack[KerasKeywords]
) -> Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: bool, **settings: Unpack[KerasKeywords]
) -> FitResult | Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[True] = True, **settings: Unpack[ModuleKeywords]
) -> FitResult: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[False], **settings: Unpack[ModuleKeywords]
) -> Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: bool, **settings: Unpack[ModuleKeywords]
) -> FitResult | Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[True] = True, **settings: Unpack[XGBoostKeywords]
) -> FitResult: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[False], **settings: Unpack[XGBoostKeywords]
) -> Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: bool, **settings: Unpack[XGBoostKeywords]
) -> FitResult | Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[True] = True, **settings: Unpack[LightGBMKeywords]
) -> FitResult: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: Literal[False], **settings: Unpack[LightGBMKeywords]
) -> Run[FitResult]: ...
@overload
def fit(
    model: Any, x: Any = None, y: Any = None, *, wait: bool, **settings: Unpack[LightGBMKeywords]
) -> FitResult | Run[FitResult]: ...
@raises_at_the_call
@frees_its_thread
@by_kind_of_model(FIT_BY_CLASS, ModuleSettings, XGBoostSettings, LightGBMSettings)
def fit(  # noqa: PLR0913 - Keras' own arguments, and ours
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: str | int | bool = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool | str = True,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Sequence[int] = 1,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    workers: int | tuple[int, int] | None = None,
    ps: int = 0,
    scorer: int = 0,
    seed: int = 0,
    streaming: bool | int = False,
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool | str = False,
    recovery: str | RecoveryPolicy | None = DEFAULT,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    gpus: Gpus = "auto",
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
    log: Any = None,
) -> FitResult | Run[FitResult]:
    """Train a compiled Keras model on the Dask cluster that holds the data: Keras' own ``fit``, in several processes.

    All workers train one model: each takes its share of every global batch, and gradients are summed before they are
    applied. So the model, its metrics and its history are those of one process, whatever the number of workers,
    up to the order in which floating-point numbers are added.

    With parameter servers (``ps``) workers train asynchronously: the servers hold the weights and the compiled
    optimizer, and workers bring gradients and take weights, each at its own pace. A worker that is lost is replaced,
    and continues where it was, while the others work on.

    Parameters
    ----------
    model : keras.Model, torch.nn.Module, or an estimator of XGBoost, LightGBM or :mod:`dask_train.linear_model`
        See ``docs/torch_modules.md``, ``docs/boosted_trees.md`` and ``docs/linear_models.md`` for these kinds. A
        Keras model is compiled: sequential, functional or subclassed, with a ``train_step`` and ``compute_loss`` of its
        own or Keras'. Built here if it has no weights yet. It is sent to each worker, takes over what was trained, and
        keeps its optimizer's state, so a second ``fit`` continues.
    x
        Inputs: a Dask or NumPy array, or a tensor, with rows along its first axis; a list, tuple or dict of them; a
        Dask or pandas frame; or a data set of :func:`dask_train.get_dataset`, which has targets and perhaps weights.
        It is required, as in Keras.
    y
        Targets, as Keras takes them: arrays, or columns that were cut from the frame. Default: none, for models
        without targets, and for ``label``.
    batch_size
        Rows of a global batch, over all workers. Default: 32.
    epochs, initial_epoch
        Number of the epoch to stop before, and of the one to begin with, from 0. Default: 1 and 0.
    verbose
        Progress on standard error: 0 shows none, 1 a line that is drawn anew, 2 a line for each epoch. Default:
        "auto", which is 1 in terminals and notebooks. Elsewhere, as in a log file, "auto" writes a line after 10
        seconds and then one a minute, and 1 one every 10 seconds.
    callbacks
        List of ``keras.callbacks.Callback``. They run in the first worker, with metrics of all workers. What they set
        acts on all workers before the next step, and your instances get what theirs hold at the end. Default: none.
    validation_split
        Fraction of the rows of arrays, the last ones, to validate on instead of training on them. Default: 0.0.
    validation_data
        Inputs and targets, and perhaps weights, in a tuple; or a frame or data set like ``x``. Default: no validation.
    shuffle
        True (default) for a new order of all rows in every epoch, "partition" for an order of the partitions and one
        within them, False for that of the collection.
    class_weight
        Weights by number of class, for models with a single output. Default: 1 each.
    sample_weight
        Weights of rows: an array, the name of the frame's column, or a dict of outputs to these. Default: 1 each.
    steps_per_epoch
        Number of global batches of an epoch. The next epoch continues with the rows after them. Default: all rows.
    validation_steps, validation_batch_size, validation_freq
        Number of batches, rows of a batch, and how many epochs to a validation, as in Keras. Default: all rows,
        ``batch_size``, 1.
    features, label
        Columns of a frame that are inputs and targets: a name gives that column, a list one matrix in the columns'
        common dtype, a dict one of these for each input or output. Default: the columns named as a dict model's
        inputs, else a matrix of all columns but those of ``label`` and ``sample_weight``; and no label.
    schema
        What columns mean to a model that was fitted elsewhere: ``result.schema`` of that fit, or the path of a saved
        one. Credentials for a URL come from the environment; to pass them, use :meth:`dask_train.FrameSchema.load`.
        Default: what the model was fitted with in this process; else it learns columns and categories of ``x``.
    workers
        Number of processes. Default: one per host, with all of its cores; one per GPU that ``gpus`` gives; one per Dask
        worker with ``ps``. 0 trains in this process, as one worker would, where a debugger can follow. ``(2, 8)``
        follows the cluster: one process per Dask worker of the run's host, at least 2 and at most 8, which join and
        leave while others train; for models and settings of ``recovery="in_place"``, which it implies.
    ps
        Number of parameter servers, which share the weights. Default: 0, synchronous training.
    scorer
        1 for a process that validates while training continues. Default: 0, all workers validate
        after each epoch; with ``ps`` the first one does.
    seed
        Seed of the orders of rows. Default: 0.
    streaming
        True, or a number of partitions, for data larger than memory: see :func:`dask_train.train`. Default: False.
    stop
        Stopping rule on metrics by their names in logs, such as ``"val_loss < 0.1"``, ``dt.Patience("val_loss", 3)``,
        or a list of rules; see :func:`dask_train.train`. ``"time_metric < 3"`` is for a metric with a reserved name:
        time, rank, role, attempt, epoch, step, trial. All workers end after the current step. Default: none.
    checkpoint
        Where to keep checkpoints: a folder that all hosts share, an fsspec URL, or a :class:`dask_train.Checkpoint`,
        which says how often, how many stay, and whether the best one. Default: nowhere.
    resume
        Resume from the last whole checkpoint, if there is one. ``epochs``, ``workers``, callbacks and
        validation may differ; another model or other data is an error. ``"new_learning_rate"`` takes the compiled
        learning rate instead of the checkpoint's. Default: False.
    recovery
        Recovery from a lost worker. Default: all start again from the last checkpoint of this call. None: an error. Or
        a :class:`~dask_train.RecoveryPolicy`. ``"in_place"`` replaces it within the step, while the others keep
        theirs: for torch modules, and for Keras models on TensorFlow and torch, on CPUs of one host.
    on
        Addresses of Dask workers to choose from. Default: all.
    resources
        Dask resources that each process needs, such as ``{"GPU": 1}``, or by role. Default: nothing.
    gpus
        "auto" (default): a device that the cluster gave the Dask worker (``CUDA_VISIBLE_DEVICES`` of dask-cuda or a
        batch system, or a declared resource ``GPU``), shared where roles outnumber devices; else CPUs. 1: a device of
        its own for each worker and scorer, or an error. 0: CPUs.
    client
        Dask client. Default: that of the Dask task which calls, else the process's own; else a local cluster starts.
    wait
        True (default) to return the result, False to return at once a :class:`~dask_train.Run` to follow and stop.
    name
        Beginning of the run's name. Default: "fit".
    log
        Other places for scores, parameters, model and report: ``dt.logging.MLflow(...)`` and its like, a function of a
        score, or a list. Default: nowhere.
    loss, optimizer
        For torch modules only, which need both: a function of outputs and targets, such as
        ``torch.nn.CrossEntropyLoss()``; and what makes an optimizer of parameters, such as
        ``partial(torch.optim.Adam, lr=1e-3)``, or one of the module's own parameters. Default: none.
    scheduler, scheduler_interval
        For torch modules only: what makes a learning rate schedule of the optimizer (default: none), such as
        ``partial(torch.optim.lr_scheduler.StepLR, step_size=5)``; and its step, "epoch" (default) or "step".
    metrics
        For torch modules only: a list or dict of torchmetrics and functions of outputs and targets. Default: none.
    qid, eval_set, eval_qid
        For boosted trees only: the query of each row, for rankings; a list of ``(X, y)`` to score in each round; and
        queries of these. Default: none.
    base_margin, sample_weight_eval_set, base_margin_eval_set, xgb_model
        For XGBoost only, as of its own ``fit``. Default: none.
    init_score, eval_names, eval_sample_weight, eval_init_score, eval_metric, eval_at, categorical_feature, init_model
        For LightGBM only, as of its own ``fit``. Default: LightGBM's own.

    Returns
    -------
    FitResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, or the data does not fit the model; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`. What a worker raises, such as a CheckpointError, is the cause
        of a RoleFailedError.
    KeyboardInterrupt
        Ctrl-C: the run has been stopped, and nothing of it is left on the cluster. The model keeps what it has learnt,
        and what there is by then is the exception's attribute ``result``, a FitResult.

    Notes
    -----
    Dropout and data augmentation draw other numbers in each worker, and BatchNormalization normalises each worker's
    share by itself. Losses and metrics of ``compile`` are exact; see ``docs/reference/keras.md`` for others.

    Examples
    --------
    >>> model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    >>> result = dt.fit(model, X, y, epochs=5, batch_size=128, workers=4)
    >>> result.history["accuracy"]
    >>> dt.fit(module, X, y, loss=torch.nn.CrossEntropyLoss(), optimizer=partial(torch.optim.Adam, lr=1e-3))
    >>> dt.fit(xgboost.XGBClassifier(), frame, label="outcome", validation_data=later)
    """
    given = with_bounds(locals())
    settings, is_new = KerasSettings.of(given), resume == fit_checks.NEW_LEARNING_RATE
    given |= {"checkpoint": check_checkpoint(checkpoint, resume, words=(fit_checks.NEW_LEARNING_RATE,))}
    given |= {"resume": bool(resume), "progress": settings.progress}
    return _fit(model, x, y, settings, RunSettings.of(given).named("fit"), new_learning_rate=is_new)


def _fit(
    model: Any, x: Any, y: Any, settings: KerasSettings, run: RunSettings, *, new_learning_rate: bool
) -> FitResult | Run[FitResult]:
    in_process, ps, scorer = settings.in_process, settings.ps, settings.scorer
    if in_process:
        server_checks.check_in_process(ps, scorer)
    fit_checks.check_model(model)
    in_place = run.recovery is not None and run.recovery.scope == "in_place"
    if in_place:
        check_replaced(model, ps, scorer, run.follows)
    check_most(run, settings.rows)
    callbacks = fit_checks.check_callbacks(settings.callbacks)
    features, label = columns_for(model, x, y, settings.features, settings.label)
    like = Conformer(learnt_for(model, settings.schema))
    data = fit_data("data", x, y, settings.sample_weight, features=features, label=label, like=like)
    validation: FitData | None = None
    if settings.validation_data is not None:
        validation = validation_of(settings.validation_data, features, label, settings.sample_weight, data.schema)
    elif settings.validation_split:
        data, validation = split_off(data, settings.validation_split)
    check_stop_names(run.stop, validates=validation is not None, known=scores_of_model(model, callbacks))
    server_checks.check_servers(ps, scorer, validates=validation is not None)
    fit_checks.check_best_of_fit(run.checkpoint, validates=validation is not None, ps=ps)
    run.needs([role for role, count in (("ps", ps), ("worker", 1), ("scorer", scorer)) if count])
    server_checks.check_callbacks_with_servers(callbacks, ps, scorer)
    weights = fit_checks.check_weights(settings.class_weight, settings.sample_weight, data)
    inputs = inputs_of(data, validation)
    fit_checks.check_rows(model, data, validation, in_place=in_process)
    server_checks.check_served(model, ps)
    workers = 1 if in_process else settings.workers
    if not in_process:
        run = replace(run, client=client_or_local(run.client, workers or 0))
        workers = number_to_begin_with(run, workers)
        if workers is None:
            workers = default_workers(run.client, run.on) if ps else default_fit_workers(run.client, run.on, run.gpus)
    assert workers is not None
    fit_checks.check_share(settings.rows, workers)
    fit_checks.check_together(model, workers, ps=ps)
    run = replace(run, resizes=partial(fit_checks.check_share, settings.rows))
    header, arrays = ({}, []) if in_process and run.checkpoint is None else taken_apart(model)
    if workers > 1 and not ps:
        check_losses(model, (header, arrays), data, weights)
    variables = Variables() if in_process else Variables.of(callbacks)
    task = FitTask(
        header=header,
        arrays=arrays,
        in_place=InPlace(model=model, callbacks=callbacks) if in_process else None,
        columns=data.columns,
        validation_columns=None if validation is None else validation.columns,
        frame=None if run.checkpoint is None or data.schema is None else data.schema.to_json(),
        callbacks=b"" if in_process else send_callbacks(callbacks, variables),
        **settings.of_task,
        **of_run(run),
        initial_epoch=settings.initial_epoch,
        random=random_state(),
        class_weight=weights,
        num_classes=fit_checks.num_classes_of(model),
        scored_elsewhere=bool(scorer),
        new_learning_rate=new_learning_rate,
    )
    counts = (("ps", ps), ("worker", workers), ("scorer", scorer))
    roles = {"worker": 0} if in_process else {role: count for role, count in counts if count}
    start: Any = run_in_process if in_process else launch
    started: FitResult | Run[FitResult] = start(
        dict.fromkeys(roles, FitRole(task)),
        roles,
        inputs,
        run,
        framework=keras_framework(in_place=in_place),
        params=params_of(model, task),
        display=settings.display,
        finish=partial(
            trained,
            model=model,
            callbacks=callbacks,
            variables=variables,
            params={"verbose": 1 if settings.verbose == "auto" else settings.verbose, "epochs": settings.epochs},
            schema=data.schema,
        ),
    )
    return started


def keras_framework(*, in_place: bool = False) -> KerasFramework:
    """Return the adapter of Keras on this process's backend; ``in_place`` as of :class:`FitFramework`."""
    import keras

    backend = keras.backend.backend()
    return KerasFramework(backend, find_framework(backend), in_place=in_place)


def random_state() -> Any:
    """Return the state of torch's random numbers, where Keras runs on it; imports Keras when it is called."""
    from dask_train.fitting.roles.weights import value_of
    from dask_train.keras_models.torch_state import torch_random

    return next(map(value_of, torch_random()), None)


def taken_apart(model: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a model as it travels; imports Keras when it is called."""
    from dask_train.keras_models.serialization import model_to_parts

    return model_to_parts(model)
