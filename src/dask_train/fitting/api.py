"""``fit``: a model, trained on a Dask collection by many workers; its arguments are those of Keras models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.cluster.devices import Gpus
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.handle import Run
from dask_train.driver.settings import DEFAULT
from dask_train.fitting.checks import NEW_LEARNING_RATE
from dask_train.fitting.keras_models import KERAS_MODELS
from dask_train.fitting.kinds import KINDS, REGISTERED, by_kind_of_model
from dask_train.fitting.result import FitResult
from dask_train.fitting.settings import KerasKeywords, LightGBMKeywords, ModuleKeywords, XGBoostKeywords
from dask_train.fitting.start import fit_function, start_fit
from dask_train.fitting.torch_module.settings import ModuleSettings
from dask_train.fitting.trees.settings import LightGBMSettings, XGBoostSettings
from dask_train.input_errors import raises_at_the_call
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule

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
@by_kind_of_model(
    KINDS, ModuleSettings, XGBoostSettings, LightGBMSettings, registered=REGISTERED, function_of=fit_function
)
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
    wire: str | None = None,
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
        Inputs and targets, and perhaps weights, in a tuple; or a frame, delayed partitions or a data set like ``x``.
        Default: no validation.
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
        follows the cluster: one process per Dask worker, at least 2 and at most 8, which join and leave while others
        train. Without ``ps`` it implies ``recovery="in_place"``, and takes the models that this takes; with ``ps`` the
        least is 1. With ``virtual_workers``, only Dask workers of one host are counted.
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
        Resume from the last whole checkpoint, if there is one. ``epochs``, ``workers`` (with ``ps`` only to more),
        callbacks and validation may differ; another model or other data is an error. ``"new_learning_rate"``, of
        Keras models, takes the compiled learning rate instead of the checkpoint's. Default: False.
    recovery
        Recovery from a lost worker. Default: all start again from the last checkpoint of this call. None: an error. Or
        a :class:`~dask_train.RecoveryPolicy`. ``"in_place"`` replaces it within the step, while the others keep
        theirs: for torch modules, Keras models, and linear models with a solver, on CPUs. For
        boosted trees it lets all start again from a recent round, kept in memory.
    wire
        "bfloat16" to let gradients travel between hosts in half of their bytes: they keep 8 of their 24 bits of
        mantissa, and are added in float32. For torch modules and Keras models without ``ps``; see
        ``docs/reference/several_hosts.md``. Default: as they are.
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
    sync_every, outer_learning_rate, outer_momentum
        For torch modules only: number of steps that each worker takes alone, on its rows of each batch, before all move
        the weights that they share, by an outer optimizer. That is DiLoCo, another algorithm; see
        ``docs/reference/several_hosts.md``. Default: none, gradients are summed in each step; 0.7 and 0.9.
    virtual_workers
        For torch modules only: number of shares that each global batch is cut into, whatever the number of workers.
        The result has the same bits for 1 to that many workers of one host. Default: one share per worker.
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
    arguments = dict(locals())
    arguments |= {"checkpoint": check_checkpoint(checkpoint, resume, words=(NEW_LEARNING_RATE,))}
    arguments |= {"resume": bool(resume), "new_learning_rate": resume == NEW_LEARNING_RATE}
    return start_fit(KERAS_MODELS, model, x, y, arguments)
