"""``fit``: a compiled Keras model, trained on a Dask collection by many workers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train import fit_checks
from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.local import client_or_local
from dask_train.config import Deadlines
from dask_train.fit_result import trained
from dask_train.fit_roles.sent_callbacks import send_callbacks
from dask_train.fit_roles.task import VALIDATION, FitTask
from dask_train.fitted_data import FitData, fit_data, split_off, validation_of
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.frameworks.registry import find_framework
from dask_train.launching import DEFAULT, launch
from dask_train.report.fit_progress import FitDisplay
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule

if TYPE_CHECKING:
    from distributed import Client

BATCH_SIZE = 32  # as in Keras


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
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    workers: int | None = None,
    ps: int = 0,
    scorer: int = 0,
    seed: int = 0,
    streaming: bool | int = False,
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    recovery: str | RecoveryPolicy | None = DEFAULT,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
) -> Any:
    """Train a compiled Keras model on the Dask cluster that holds the data: Keras' own ``fit``, in several processes.

    All workers train one model: each takes its share of every global batch, and gradients are summed before they are
    applied. So the model, its metrics and its history are those of one process, whatever the number of workers, but
    for the order in which floating-point numbers are added up.

    With parameter servers (``ps``) workers train asynchronously: the servers hold the weights and the compiled
    optimizer, and workers bring gradients and take weights, each at its own pace. A worker that is lost is replaced,
    and goes on where it was, while the others work on.

    Parameters
    ----------
    model : keras.Model
        Compiled; sequential, functional or subclassed, with a ``train_step`` and a ``compute_loss`` of its own or
        Keras'. Built here where it has no weights yet. It is sent to each worker, takes over what was trained at the
        end, and keeps its optimizer's state, so a second ``fit`` goes on.
    x
        Inputs: a Dask or NumPy array with rows along its first axis; a list, tuple or dict of them; a Dask or pandas
        frame with ``features``; or a data set of :func:`dask_train.get_dataset`, with targets and perhaps weights.
    y, sample_weight
        Targets, and weights of rows, as Keras takes them; arrays.
    batch_size
        Rows of a global batch, over all workers; 32 where it is None.
    epochs, initial_epoch, steps_per_epoch
        As in Keras: the number of the epoch to stop before, that to begin with, and batches of an epoch where these
        are not all of the data.
    verbose
        0 shows nothing, 1 and 2 show how it goes; "auto" shows it in terminals and notebooks.
    callbacks
        Instances of ``keras.callbacks.Callback``. They run in the first worker, with metrics of all, and what they set
        acts on all workers before the next step: learning rates, weights, ``stop_training``. What they hold at the end
        is held by the instances that were passed.
    validation_data
        Inputs and targets, and perhaps weights, in a tuple; or a frame or data set like ``x``.
    validation_split
        The last fraction of the rows of arrays is validated on instead of trained on.
    validation_batch_size, validation_steps, validation_freq
        As in Keras; all workers validate together.
    shuffle
        True for a new order of all rows in every epoch, "partition" for one of the partitions and within them, False
        for that of the collection.
    class_weight
        Weights by number of class.
    features, label
        Of a frame, which columns are inputs and which is the target.
    workers
        How many; one a Dask worker where it is None.
    ps
        How many parameter servers share the weights; 0 trains synchronously. Between hosts weights and gradients go
        over TCP, with the cluster's TLS where it has some.
    scorer
        1 for a process that validates the latest weights beside training, with ``ps``: its scores come as they are
        found, and ``stop`` looks at them. Without one the first worker validates at the end of its epochs.
    seed
        Fixes the orders of rows.
    streaming
        As in :func:`dask_train.train`, for data larger than memory.
    stop
        When it is good enough, on metrics by their names in logs, such as ``"val_loss < 0.1"``; see
        :func:`dask_train.train`. It ends after the step in hand, on all workers.
    checkpoint
        Where to keep checkpoints: a folder that all hosts share, an fsspec URL, or a :class:`dask_train.Checkpoint`.
        They hold all that training depends on, so what goes on from one ends with the same weights.
    resume
        Whether to go on with the last checkpoint there, if there is one; with the same data and arguments, on any
        number of workers.
    recovery
        What a lost worker means: all start again, from the last checkpoint of this call (the default), or, with None,
        an error; or a :class:`~dask_train.RecoveryPolicy`.
    on, resources, client, name
        As in :func:`dask_train.train`.
    wait
        Whether to return the result, or at once a :class:`~dask_train.Run` to follow and stop.

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

    Notes
    -----
    Dropout draws other numbers in each worker. BatchNormalization normalises each worker's share by itself, as in
    PyTorch's DistributedDataParallel and ``tf.distribute``; its moving averages are averaged at the end of each epoch.
    Gradients of embeddings are summed as dense tables. A loss reduced over sample weights, a mask, or by a sum is exact
    as well. A loss or ``train_step`` of your own counts as a mean over the rows of its batch. Metrics whose variables
    are sums over rows, as those of Keras, are exact.

    Examples
    --------
    >>> model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])  # doctest: +SKIP
    >>> result = dt.fit(model, X, y, epochs=5, batch_size=128, workers=4)               # doctest: +SKIP
    >>> result.history["accuracy"]                                                      # doctest: +SKIP
    """
    fit_checks.check_model(model)
    fit_checks.check_counts(
        workers=workers,
        steps_per_epoch=steps_per_epoch,
        validation_steps=validation_steps,
        validation_batch_size=validation_batch_size,
    )
    listed = fit_checks.check_callbacks(callbacks)
    kept = checkpoint if isinstance(checkpoint, Checkpoint | None) else Checkpoint(checkpoint)
    if resume and kept is None:
        raise ValueError(
            "resume=True goes on with a checkpoint; say where they are kept: checkpoint='a folder or URL'."
        )
    data = fit_data("data", x, y, sample_weight, features=features, label=label)
    validation: FitData | None = None
    if validation_data is not None:
        validation = validation_of(validation_data, features, label)
    elif validation_split:
        data, validation = split_off(data, validation_split)
    fit_checks.check_servers(model, ps, scorer, validates=validation is not None)
    weights = fit_checks.check_weights(class_weight, sample_weight, data)
    source = data.source("data")
    datasets = {} if validation is None else {VALIDATION: validation.source("validation_data")}
    client = client_or_local(client, workers or 0)
    workers = workers or _default_workers(client, on)
    rows = BATCH_SIZE if batch_size is None else batch_size
    fit_checks.check_order(
        epochs=epochs,
        initial_epoch=initial_epoch,
        shuffle=shuffle,
        seed=seed,
        batch_size=rows,
        workers=workers,
        validation_freq=validation_freq,
    )
    fit_checks.check_rows(model, data, validation)
    header, arrays = taken_apart(model)
    task = FitTask(
        header=header,
        arrays=arrays,
        layout=data.layout,
        validation_layout=None if validation is None else validation.layout,
        callbacks=send_callbacks(listed),
        epochs=epochs,
        initial_epoch=initial_epoch,
        batch_size=rows,
        steps_per_epoch=steps_per_epoch,
        shuffle=shuffle,
        seed=seed,
        validation_batch_size=validation_batch_size or rows,
        validation_steps=validation_steps,
        validation_freq=validation_freq,
        class_weight=weights,
        num_classes=fit_checks.num_classes_of(model),
        scored_elsewhere=bool(scorer),
        checkpoint_every=None if kept is None else (kept.every_steps, kept.every_s),
        resume=resume,
        run=uuid.uuid4().hex,
        patience_s=1.5 * Deadlines.from_dask_config().progress_s,  # a stall is told by the run first, with its causes
    )
    roles = {role: count for role, count in (("ps", ps), ("worker", workers), ("scorer", scorer)) if count}
    return launch(
        dict.fromkeys(roles, task),
        roles=roles,
        data={"worker": source},
        datasets=datasets,
        streaming=streaming,
        framework=keras_framework(),
        recovery=recovery,
        stop=stop,
        checkpoint=None if kept is None else kept.url,
        on=on,
        resources=resources,
        client=client,
        wait=wait,
        name=name or "fit",
        progress=None if verbose == "auto" else bool(verbose) and wait,
        display=partial(FitDisplay, epochs=epochs),
        finish=partial(trained, model=model, callbacks=listed),
    )


def keras_framework() -> KerasFramework:
    """The adapter of Keras on this process's backend."""
    import keras

    backend = keras.backend.backend()
    return KerasFramework(backend, find_framework(backend))


def taken_apart(model: Any) -> tuple[dict[str, Any], list[Any]]:
    """A model as it travels; imports Keras when it is called."""
    from dask_train.frameworks.keras.serialization import model_to_parts

    return model_to_parts(model)


def _default_workers(client: Client, on: Sequence[str] | None) -> int:
    return len(on) if on is not None else max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
