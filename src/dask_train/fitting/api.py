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
    workers: int | None = None,
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
    applied. So the model, its metrics and its history are those of one process, whatever the number of workers, but
    for the order in which floating-point numbers are added up.

    With parameter servers (``ps``) workers train asynchronously: the servers hold the weights and the compiled
    optimizer, and workers bring gradients and take weights, each at its own pace. A worker that is lost is replaced,
    and goes on where it was, while the others work on.

    Parameters
    ----------
    model : keras.Model, torch.nn.Module, or an estimator of XGBoost, LightGBM or :mod:`dask_train.linear_model`
        Which arguments modules of torch take (``loss=``, ``optimizer=`` and the like) is told in
        ``docs/torch_modules.md``, of boosted trees in ``docs/boosted_trees.md``, and of linear models in
        ``docs/linear_models.md``. The rest is of Keras models:
        compiled; sequential, functional or subclassed, with a ``train_step`` and a ``compute_loss`` of its own or
        Keras'. Built here where it has no weights yet. It is sent to each worker, takes over what was trained at the
        end, and keeps its optimizer's state, so a second ``fit`` goes on.
    x
        Inputs: a Dask or NumPy array, or a tensor, with rows along its first axis; a list, tuple or dict of them; a
        Dask or pandas frame, perhaps with ``features``; or a data set of :func:`dask_train.get_dataset`, with targets
        and perhaps weights.
    y, sample_weight
        Targets, and weights of rows, as Keras takes them; arrays, or columns that were cut from the frame. Weights of
        a frame: the name of their column, or a dict of outputs to columns.
    batch_size
        Rows of a global batch, over all workers; 32 where it is None.
    epochs, initial_epoch, steps_per_epoch
        As in Keras: the number of the epoch to stop before, that to begin with, and batches of an epoch where these
        are not all of the data. Such an epoch goes on where the last one ended, and ends with the data at the latest.
    verbose
        How it goes, on standard error, while this waits: 0 shows nothing, 1 a line that is drawn anew, and where there
        is neither a terminal nor a notebook one every 10 seconds; 2 a line for each epoch. "auto" is 1 in terminals
        and notebooks, and else 0.
    callbacks
        Instances of ``keras.callbacks.Callback``. They run in the first worker, with metrics of all, and what they set
        acts on all workers before the next step: learning rates, weights, ``stop_training``. What they hold at the end
        is held by the instances that were passed.
    validation_data
        Inputs and targets, and perhaps weights, in a tuple; or a frame or data set like ``x``, of which the same
        columns are taken, weights too.
    validation_split
        The last fraction of the rows of arrays is validated on instead of trained on.
    validation_batch_size, validation_steps, validation_freq
        As in Keras; all workers validate together.
    shuffle
        True for a new order of all rows in every epoch, "partition" for one of the partitions and within them, False
        for that of the collection.
    class_weight
        Weights by number of class, for models with a single output; as in Keras.
    features, label
        Of a frame, which columns are inputs and which are targets: one name gives that column, a list of names one
        matrix in their common dtype, a dict one or the other for each input or output by its name. All columns but
        those of label and weights are features where it is None. For a model whose inputs are a dict, a frame's
        columns of those names are its inputs where features does not say otherwise; for a model of several outputs,
        a list of labels has one for each.
    schema
        What the columns of a frame mean to a model that was fitted elsewhere and is trained further: ``result.schema``
        of that fit, or the path of what ``result.save`` has written. Default: what the model was fitted with in this
        process; else it learns the columns and categories of this frame.
    workers
        How many. Where it is None: one a host, which has all of the host's cores, as on one host that trains as fast
        as several or faster; one for each GPU that ``gpus`` gives; one a Dask worker with ``ps``. 0 trains in this
        process, as one worker would, where a debugger can follow it: the model and the callbacks that were passed, as
        they are, and what they raise is raised as it is.
    ps
        How many parameter servers share the weights; 0 trains synchronously. Between hosts weights and gradients go
        over TCP, with the cluster's TLS where it has some.
    scorer
        1 for a process that validates beside training, which waits for it in no step: its scores come as they are
        found, and ``stop`` looks at them. With ``ps`` it validates the latest weights over and over; without, those of
        the latest epoch that has ended: epochs that end while it is at an earlier one are NaN in the history, but for
        the last, which is waited for. Callbacks do not see its scores. Without a scorer all workers validate after each
        epoch; with ``ps`` the first one does.
    seed
        Fixes the orders of rows.
    streaming
        As in :func:`dask_train.train`, for data larger than memory.
    stop
        When it is good enough, on metrics by their names in logs, such as ``"val_loss < 0.1"`` (``"time_metric < 3"``
        where a metric has a name that scores have already: time, rank, role, attempt, epoch, step, trial); see
        :func:`dask_train.train`. It ends after the step in hand, on all workers.
    checkpoint
        Where to keep checkpoints: a folder that all hosts share, an fsspec URL, or a :class:`dask_train.Checkpoint`.
        They hold all that training depends on, so what goes on from one ends with the same weights. With
        ``dt.Checkpoint(..., keep=3, best="val_loss")`` the last three and the best one stay; ``restore_best=True``
        ends with the best one's model.
    resume
        Whether to go on with the last whole checkpoint there, if there is one; with the same model, compilation, data
        and arguments, or it is an error that says what differs. Free are ``epochs``, ``workers``, callbacks,
        validation and what concerns the run. The learning rate is that of the checkpoint; with
        ``resume="new_learning_rate"`` it is the one that the model is compiled with.
    recovery
        What a lost worker means: all start again, from the last checkpoint of this call (the default), or, with None,
        an error; or a :class:`~dask_train.RecoveryPolicy`. ``"in_place"``, for torch modules, and for Keras
        models on TensorFlow and torch, on CPUs of one host: a new process takes its place within the step, and the
        others keep theirs.
    gpus
        Device of each worker and scorer. ``"auto"`` (default): a device that the cluster gave the Dask worker
        (``CUDA_VISIBLE_DEVICES`` of dask-cuda or a batch system, or a declared resource ``GPU``), shared where roles
        outnumber devices; on clusters that gave none, CPUs. 1: a device of its own for each, of all that the hosts
        have; an error where the framework would compute on CPUs all the same. 0: CPUs.
    on, resources, client, name, log
        As in :func:`dask_train.train`; a log gets the model, its parameters and the page of ``result.report`` as well.
    wait
        Whether to return the result, or at once a :class:`~dask_train.Run` to follow and stop.
    loss, optimizer, scheduler, scheduler_interval, metrics
        For torch modules only, which need the first two; see ``docs/torch_modules.md``.
    qid, eval_set, eval_qid
        For boosted trees only: query of each row, and rows that are scored; see ``docs/boosted_trees.md``.
    base_margin, sample_weight_eval_set, base_margin_eval_set, xgb_model
        For XGBoost only, as of its own ``fit``.
    init_score, eval_names, eval_sample_weight, eval_init_score, eval_metric, eval_at, categorical_feature, init_model
        For LightGBM only, as of its own ``fit``.

    Returns
    -------
    FitResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be, or the data does not fit the model; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`. What a worker raises, such as a CheckpointError, is the cause
        of a RoleFailedError.
    KeyboardInterrupt
        Ctrl-C: the run has been stopped, and nothing of it is left on the cluster. The model keeps what it has learnt,
        and what there is by then is the exception's attribute ``result``, a FitResult.

    Notes
    -----
    Dropout draws other numbers in each worker. BatchNormalization normalises each worker's share by itself, as in
    PyTorch's DistributedDataParallel and ``tf.distribute``; its moving averages are averaged at the end of each epoch.
    Gradients of embeddings are summed as dense tables. A loss reduced over sample weights, a mask, or by a sum is exact
    as well. A loss or ``train_step`` of your own counts as a mean over the rows of its batch. Metrics whose variables
    are sums over rows, as those of Keras, are exact, and so are logs of any names that are computed from them.

    Examples
    --------
    >>> model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])  # doctest: +SKIP
    >>> result = dt.fit(model, X, y, epochs=5, batch_size=128, workers=4)               # doctest: +SKIP
    >>> result.history["accuracy"]                                                      # doctest: +SKIP
    """
    given = dict(locals())
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
        check_replaced(model, ps, scorer)
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
        if workers is None:
            workers = default_workers(run.client, run.on) if ps else default_fit_workers(run.client, run.on, run.gpus)
    assert workers is not None
    fit_checks.check_share(settings.rows, workers)
    fit_checks.check_together(model, workers, ps=ps)
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
