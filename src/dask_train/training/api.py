"""Any loop, any roles: ``train``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from dask_train.checkpoint.policy import Checkpoint, check_best_of_train
from dask_train.cluster.devices import Gpus
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.driver.handle import Run
from dask_train.driver.result import Result
from dask_train.driver.settings import DEFAULT, RunInputs, RunSettings
from dask_train.frameworks.base import Framework
from dask_train.input_errors import raises_at_the_call
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule
from dask_train.training.in_process import is_in_process, run_in_process
from dask_train.training.launch import launch

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client
    from dask_train.role.session import Session


class TrainSettings(TypedDict, total=False):
    """All keywords of :func:`train` but ``wait``, on which its type depends; see there for their meaning."""

    roles: Mapping[str, int] | None
    data: Any
    features: str | Sequence[str] | None
    label: str | None
    streaming: bool | int
    datasets: Mapping[str, Any] | None
    framework: str | Framework | None
    recovery: str | RecoveryPolicy | None
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    resume: bool
    on: Sequence[str] | None
    resources: Mapping[str, Any] | None
    gpus: Gpus
    client: Client | None
    name: str | None
    progress: bool | None
    log: Any


_Functions = Callable[["Session"], Any] | Mapping[str, Callable[["Session"], Any]]


@overload
def train(function: _Functions, *, wait: Literal[True] = True, **settings: Unpack[TrainSettings]) -> Result: ...
@overload
def train(function: _Functions, *, wait: Literal[False], **settings: Unpack[TrainSettings]) -> Run[Result]: ...
@overload
def train(function: _Functions, *, wait: bool, **settings: Unpack[TrainSettings]) -> Result | Run[Result]: ...
@raises_at_the_call
@frees_its_thread
def train(  # noqa: PLR0913 - one keyword for each setting of a run
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
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    gpus: Gpus = None,
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
    progress: bool | None = None,
    log: Any = None,
) -> Result | Run[Result]:
    """Run functions as role processes next to the data: place all at once, watch, recover, and end them.

    Parameters
    ----------
    function
        Function of a :class:`~dask_train.role.session.Session` that role ``worker`` runs, or a dict of functions by
        role. Parameter servers (``ps``) have a default. A lambda or a function of a notebook is fine.
    roles
        Number of processes by role, such as ``{"ps": 1, "worker": 4}``. Default: one worker per Dask worker, and one
        of each other role that has a function. ``{"worker": 0}`` calls the function in this process,
        where a debugger can follow it: a run of one worker, without any other process; what it raises is raised as it
        is.
    data
        What ``session.batches`` goes through (default: nothing): Dask, NumPy or sparse arrays, a tuple or a dict of
        them with the same rows; a Dask or pandas DataFrame; a list of delayed partitions; a published data set. That of
        role ``worker``; or by role, in a dict whose keys are all roles of the run (a dict of columns that has such a
        key goes by role, too: ``{"worker": {...}}``). Dask computes it, each partition into shared memory of the Dask
        worker where it lies, and role processes of that host map it: one copy, besides one that you keep persisted.
    features, label
        Columns of a DataFrame that batches are made of: a list makes one matrix of them, a name gives that column.
        With a label batches are tuples ``(x, y)``. Default: all columns, and no label.
    streaming
        True for data larger than memory (default: False): it is computed a group of partitions at a time, ahead of the
        roles, and freed behind, in every epoch anew; ``shuffle=True`` then draws from one group after the other. A
        number says how many partitions make a group.
    datasets
        More data sets, by names under which roles open them with ``session.dataset(name)``; each as ``data`` of a
        role. They come before published ones of the same names, and live as long as the run. Default: none.
    framework
        ``None`` (default: batches are NumPy arrays), ``"tensorflow"``, ``"torch"``, ``"torchrun"`` (as ``"torch"``, for
        loops that make the process group themselves), ``"jax"``, ``"jax-distributed"``, ``"xgboost"``, ``"lightgbm"``
        (with the library's own network between the ranks), or an adapter.
    recovery
        Recovery from a lost role: ``"role"`` (only it is replaced; the default without a framework and with parameter
        servers, and for roles that don't train), ``"gang"`` (all start again; the default for roles that agree every
        step), None (an error), or a
        :class:`~dask_train.run.recovery.RecoveryPolicy`.
    stop
        Stopping rule (default: none): ``"val_loss < 0.1"``, ``"steps >= 1000 or seconds > 60"`` (of the run; where a
        role reports a score of such a name, that score), ``dask_train.Patience("val_loss", 3)``, a function of the list
        of scores, or a list of these.
    checkpoint
        Where ``session.save_checkpoint`` keeps them, and ``load_checkpoint`` finds them (default: nowhere): a folder
        that all hosts with training roles share, a URL for fsspec, or a :class:`dask_train.Checkpoint`, which also says
        how often ``session.checkpoint_due()`` is true, and which ones stay; a run of its own each. Checkpoints have
        checksums: a damaged one is passed over for the one before, and ``result.notices`` says so.
    resume
        Resume from the last whole checkpoint there, if there is one: ``load_checkpoint`` then gives it.
        Default: False, it gives only those of this run, to a role that starts again.
    on
        Addresses of Dask workers to choose from. Default: all.
    resources
        Dask resources that each role process needs, such as ``{"GPU": 1}`` for all roles but
        parameter servers, or by role ``{"worker": {"GPU": 1}}``. A key may not be both. Default: nothing.
    gpus
        Device of each role process but parameter servers. ``"auto"``: a device that the cluster gave the Dask worker
        (``CUDA_VISIBLE_DEVICES`` of dask-cuda or a batch system, or a declared resource ``GPU``), shared where roles
        outnumber devices, and none if no Dask worker was given one. 1: a device of its own; an error where the
        framework would compute on CPUs anyway. 0: none. Default: None, all devices that the Dask worker sees.
    client
        Dask client. Default: in a Dask task that of the task, whose thread is free for others while this waits; else
        ``distributed.default_client()``; if there is none, a local cluster is started.
    wait
        True (default) to return the result, False to return at once a :class:`~dask_train.driver.handle.Run` to follow
        and stop.
    name
        Beginning of the run's name. Default: the function's name.
    progress
        Show progress on standard error while this waits: roles, scores, rates. Default: in terminals and
        notebooks; elsewhere, as in a log file, a line after 10 seconds and then one a minute. True writes one every 10
        seconds there. ``verbose`` in :func:`dask_train.fit`.
    log
        Where scores, parameters, the ledger and the run's end are written besides (default: nowhere):
        ``dt.logging.MLflow(...)``, ``dt.logging.TensorBoard(folder)``, ``dt.logging.WandB(...)``, a function that takes
        a score, or a list of these. This process writes them, in threads of their own; a place that can't be reached is
        tried again until ``train.logging.timeout`` after the run, and ``result.notices`` say what it never got.

    Returns
    -------
    Result, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid; nothing has been started.
    PlacementError
        There was no room for all roles within ``train.placement.timeout``.
    LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; notes carry the role's traceback and the end of its output.
    KeyboardInterrupt
        Ctrl-C: the run has been stopped, and nothing of it is left on the cluster. What it has left by then is the
        exception's attribute ``result``, a Result.

    Notes
    -----
    A run ends when its client goes. Role processes are spread over the Dask workers first, then fill their threads; a
    run that needs more waits for others to end, and one that has more roles than the whole cluster has threads shares
    them.

    Examples
    --------
    >>> def worker(session):
    ...     for x, y in session.batches(epochs=3, batch_size=128):
    ...         session.report(loss=step(x, y))
    >>> dt.train(worker, roles={"worker": 4}, data=(X, y), stop="loss < 0.1")
    """
    arguments = dict(locals())
    run, inputs = RunSettings.of(arguments), RunInputs(data=data, datasets=datasets, features=features, label=label)
    check_best_of_train(run.checkpoint)
    start: Any = run_in_process if is_in_process(roles) else launch
    started: Result | Run[Result] = start(function, roles, inputs, run, framework=framework)
    return started
