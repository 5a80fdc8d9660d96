"""Any loop, any roles: ``train``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask_train.frameworks.base import Framework
from dask_train.launching import DEFAULT, launch
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule

if TYPE_CHECKING:
    from distributed import Client

    from dask_train.session import Session


def train(  # noqa: PLR0913 - one keyword for each thing that a run can be told
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
) -> Any:
    """Run functions as role processes beside the data: placed all at once, watched, mended, and ended.

    Parameters
    ----------
    function
        What each role does, by role; it is given a :class:`~dask_train.session.Session`. One function means that of
        role ``worker``. Parameter servers (``ps``) have a default. A lambda or a function of a notebook is fine.
    roles
        How many there are of each role, such as ``{"ps": 1, "worker": 4}``. Where it is None: one worker a Dask
        worker, and one of each other role that has a function.
    data
        What ``session.batches`` goes through: Dask or NumPy arrays, a tuple or a dict of them with the same rows; a
        Dask or pandas DataFrame; a list of delayed partitions; a published data set. That of role ``worker``, or a
        dict by role. Dask computes it, each partition into shared memory of the Dask worker where it lies, and role
        processes of that host map it: one copy, besides one that you keep persisted.
    features, label
        Of DataFrames, which columns batches are made of: a list makes one matrix of them, a name gives that column;
        with a label batches are tuples ``(x, y)``.
    streaming
        True for data larger than memory: it is computed a group of partitions at a time, ahead of the roles, and
        freed behind, in every epoch anew; ``shuffle=True`` then draws from one group after the other. A number says
        how many partitions make a group.
    datasets
        More data sets, by names under which roles open them with ``session.dataset(name)``; each as ``data`` of a
        role. They come before published ones of the same names, and live as long as the run.
    framework
        ``None`` (batches are NumPy arrays), ``"tensorflow"``, ``"torch"``, or an adapter.
    recovery
        What a lost role means: ``"role"`` (only it is replaced; the default without a framework and with parameter
        servers), ``"gang"`` (all start again; the default where the roles agree every step), None (an error), or a
        :class:`~dask_train.run.recovery.RecoveryPolicy`.
    stop
        When it is good enough: ``"val_loss < 0.1"``, ``"steps >= 1000 or seconds > 60"``,
        ``dask_train.Patience("val_loss", 3)``, a function of the list of scores, or a list of these.
    checkpoint
        Where ``session.save_checkpoint`` keeps them, and ``load_checkpoint`` finds them: a folder that all hosts with
        training roles share, or a URL for fsspec.
    on
        Addresses of Dask workers to choose from; else all.
    resources
        What each role process needs of the Dask workers' resources, such as ``{"GPU": 1}`` for all roles but
        parameter servers, or by role ``{"worker": {"GPU": 1}}``.
    client
        ``distributed.default_client()`` where it is None; where there is none, a local cluster is started.
    wait
        Whether to return the result, or at once a :class:`~dask_train.cluster.run.Run` to follow and stop.
    name
        Begins the run's name; the function's name where it is None.
    progress
        Whether to show how it goes while this waits, on standard error: roles, scores, rates. None shows it in
        terminals and notebooks. Where there is neither, nothing is shown in any case.

    Returns
    -------
    Result, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be; nothing has been started.
    PlacementError
        There was no room for all roles within ``train.placement.timeout``.
    LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; notes carry the role's traceback and the end of its output.
    KeyboardInterrupt
        It was interrupted; the run has been stopped.

    Notes
    -----
    A run ends when its client goes. Role processes are spread over the Dask workers first, then fill their threads; a
    run that needs more waits for others to end, and one that has more roles than the whole cluster has threads shares
    them.

    Examples
    --------
    >>> def worker(session):                                                 # doctest: +SKIP
    ...     for x, y in session.batches(epochs=3, batch_size=128):
    ...         session.report(loss=step(x, y))
    >>> dt.train(worker, roles={"worker": 4}, data=(X, y), stop="loss < 0.1")  # doctest: +SKIP
    """
    return launch(
        function,
        roles=roles,
        data=data,
        features=features,
        label=label,
        streaming=streaming,
        datasets=datasets,
        framework=framework,
        recovery=recovery,
        stop=stop,
        checkpoint=checkpoint,
        on=on,
        resources=resources,
        client=client,
        wait=wait,
        name=name,
        progress=progress,
    )
