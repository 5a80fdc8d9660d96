"""``search``: Optuna's search over Keras models, many trials at a time, on one data set in shared memory."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train import fit_checks
from dask_train.cluster.held import Held
from dask_train.cluster.local import client_or_local
from dask_train.cluster.peer import Peer
from dask_train.cluster.shared_segments import SharedSegments
from dask_train.collections.source import Source
from dask_train.config import Deadlines
from dask_train.errors import PlacementError, RoleFailedError
from dask_train.fit_roles.sent_callbacks import send_callbacks
from dask_train.fit_roles.task import VALIDATION, FitTask
from dask_train.fit_roles.trials import TrialLoop
from dask_train.fitted_data import FitData, fit_data, rows_of, split_off, validation_of
from dask_train.fitting import BATCH_SIZE, keras_framework, taken_apart
from dask_train.launching import launch
from dask_train.report.progress import check_progress
from dask_train.report.search_progress import SearchDisplay
from dask_train.study.opening import open_study
from dask_train.study.result import SearchResult
from dask_train.study.slots import Crew, Slot, Slots
from dask_train.study.trials import Trials

if TYPE_CHECKING:
    from distributed import Client

_DATA, _VALIDATION = "data", "validation_data"
# What `build` may tell of a trial besides its model.
_OF_TRIAL = ("batch_size", "epochs", "callbacks", "class_weight")


@dataclass(frozen=True, kw_only=True)
class _Fitting:
    """How trials are fitted, where they do not say otherwise themselves."""

    build: Callable[[Any], Any]
    data: FitData
    validation: FitData | None
    workers: int
    seed: int
    shuffle: Any
    validation_batch_size: int | None
    defaults: Mapping[str, Any]

    def task(self, trial: Any) -> FitTask:
        """What is to be trained for a trial of Optuna."""
        model, given = self._built(trial)
        settings = {**self.defaults, **given}
        batch_size, epochs = settings["batch_size"], settings["epochs"]
        fit_checks.check_model(model)
        fit_checks.check_order(
            epochs=epochs,
            initial_epoch=0,
            shuffle=self.shuffle,
            seed=self.seed,
            batch_size=batch_size,
            workers=self.workers,
            validation_freq=1,
        )
        fit_checks.check_rows(model, self.data, self.validation)
        header, arrays = taken_apart(model)
        return FitTask(
            header=header,
            arrays=arrays,
            layout=self.data.layout,
            validation_layout=None if self.validation is None else self.validation.layout,
            callbacks=send_callbacks(fit_checks.check_callbacks(settings["callbacks"])),
            epochs=epochs,
            batch_size=batch_size,
            shuffle=self.shuffle,
            seed=self.seed,
            validation_batch_size=self.validation_batch_size or batch_size,
            class_weight=fit_checks.check_weights(settings["class_weight"], None, self.data),
            num_classes=fit_checks.num_classes_of(model),
            run=uuid.uuid4().hex,
            patience_s=1.5 * Deadlines.from_dask_config().progress_s,
        )

    def _built(self, trial: Any) -> tuple[Any, dict[str, Any]]:
        made = self.build(trial)
        if not isinstance(made, tuple):
            return made, {}
        if len(made) != 2 or not isinstance(made[1], Mapping):
            raise TypeError(f"build returned a tuple of {len(made)}; it returns a model, or a model and a dict.")
        if unknown := sorted(map(str, set(made[1]) - set(_OF_TRIAL))):
            raise ValueError(f"build told {', '.join(unknown)} of a trial; it can tell {', '.join(_OF_TRIAL)}.")
        return made[0], dict(made[1])


def search(  # noqa: PLR0913 - what dt.fit takes of a training, and what Optuna takes of a study
    build: Callable[[Any], Any],
    x: Any,
    y: Any = None,
    *,
    metric: str = "val_accuracy",
    direction: str = "maximize",
    trials: int = 20,
    epochs: int = 5,
    batch_size: int | None = None,
    callbacks: Any = None,
    class_weight: Mapping[int, float] | None = None,
    shuffle: bool | str = True,
    seed: int = 0,
    validation_data: Any = None,
    validation_split: float = 0.0,
    validation_batch_size: int | None = None,
    sample_weight: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    workers_per_trial: int = 1,
    concurrency: int | None = None,
    sampler: Any = None,
    pruner: Any = None,
    storage: Any = None,
    study_name: str | None = None,
    timeout_s: float | None = None,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    client: Client | None = None,
    progress: bool | None = None,
) -> SearchResult:
    """Search parameters of a Keras model with Optuna: many trials at a time on the Dask cluster that holds the data.

    The data is put into shared memory once, for all trials. Each trial is trained in a process beside it that serves
    one trial after the other, so that Keras is imported once a process and not once a trial.

    Parameters
    ----------
    build
        Called in this process with an ``optuna.trial.Trial``, which suggests parameters; returns a compiled
        ``keras.Model``, or a tuple of one and a dict that gives this trial a ``batch_size``, ``epochs``, ``callbacks``
        or ``class_weight`` of its own. A trial whose ``build`` raises has failed; ``optuna.TrialPruned`` prunes it.
    x, y, sample_weight, features, label
        As in :func:`dask_train.fit`: arrays, a frame, or a data set of :func:`dask_train.get_dataset`.
    metric
        The score that counts, by its name in Keras' logs. A trial's value is the best one of its epochs.
    direction
        "maximize" or "minimize".
    trials
        How many are begun by this call, as ``n_trials`` of Optuna: also where a study goes on. Those that repeat a
        trial whose process or Dask worker was lost come on top.
    epochs, batch_size, callbacks, class_weight, shuffle
        As in :func:`dask_train.fit`, of every trial. Each trial is sent the callbacks as they are here.
    seed
        Fixes the orders of rows, and what the default sampler draws.
    validation_data, validation_split, validation_batch_size
        As in :func:`dask_train.fit`.
    workers_per_trial
        How many processes train one model together, synchronously. After a trial of several that raises, the next
        trial starts processes anew.
    concurrency
        How many trials are trained at a time, at most; as many as the cluster holds where it is None.
    sampler
        Of ``optuna.samplers``; ``TPESampler(seed=seed)`` where it is None. One that has no more to suggest, such as
        ``GridSampler``, ends the search.
    pruner
        Of ``optuna.pruners``; it sees the metric after each epoch, and a trial that it ends is left at its next step.
        None prunes nothing.
    storage
        Where Optuna keeps the study: None for memory, the path of a file for SQLite, a URL, or one of
        ``optuna.storages``.
    study_name
        The study of that name in the storage goes on, if there is one.
    timeout_s
        After so many seconds no trial is begun any more; those that are trained go on to their ends.
    on, resources, client
        As in :func:`dask_train.fit`.
    progress
        Whether to show the trials; None does so in terminals and notebooks. Outside of these True writes a line for
        each trial that ends.

    Returns
    -------
    SearchResult
        With ``best_model``, ``best_params``, ``trials_dataframe()`` and Optuna's ``study``.

    Raises
    ------
    ValueError, TypeError
        An argument can't be; nothing has been started.
    ImportError
        Optuna is not installed.
    PlacementError
        The cluster can't hold a single trial.
    RoleFailedError
        All trials of this call have failed; the first one's error is told.
    DataError, LaunchError, RoleLostError, StalledError
        The data can't be computed, or processes are lost again and again.
    KeyboardInterrupt
        Ctrl-C: trials in hand are recorded as failed, nothing is left on the cluster. What was found so far is the
        exception's attribute ``search``, a SearchResult, and in the storage.

    Notes
    -----
    Only the weights of the best trial are kept, as they were after its best epoch. Trials that are pruned after their
    last epoch count as pruned. A trial in the hands of a client that was killed stays "running" in the storage.

    Examples
    --------
    >>> def build(trial):                                                               # doctest: +SKIP
    ...     units = trial.suggest_int("units", 16, 256, log=True)
    ...     model = keras.Sequential([keras.Input((784,)), layers.Dense(units, "relu"), layers.Dense(10, "softmax")])
    ...     model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    ...     return model
    >>> found = dt.search(build, X, y, validation_data=(Xv, yv), trials=20, epochs=5)   # doctest: +SKIP
    >>> found.best_params, found.best_model.evaluate(Xt, yt)                            # doctest: +SKIP
    """
    _check(build, metric, direction, timeout_s)
    fit_checks.check_counts(
        trials=trials,
        epochs=epochs,
        batch_size=batch_size,
        workers_per_trial=workers_per_trial,
        concurrency=concurrency,
        validation_batch_size=validation_batch_size,
    )
    listed = fit_checks.check_callbacks(callbacks)
    data = fit_data("data", x, y, sample_weight, features=features, label=label)
    if validation_data is not None:
        validation: FitData | None = validation_of(validation_data, features, label)
    else:
        data, validation = split_off(data, validation_split) if validation_split else (data, None)
    if metric.startswith("val_") and validation is None:
        raise ValueError(f"metric={metric!r} is of validation: pass validation_data or validation_split.")
    weights = fit_checks.check_weights(class_weight, sample_weight, data)
    study = open_study(
        direction=direction, sampler=sampler, pruner=pruner, storage=storage, study_name=study_name, seed=seed
    )
    client = client_or_local(client, 0)
    peer = Peer(client)
    if peer.asynchronous:
        raise ValueError(
            "search waits for trials, and this client is asynchronous. Call it in a thread with a client of its own: "
            "distributed.Client(address)."
        )
    check_progress(progress, waits=True)
    needs = _needs(resources)
    capacity = partial(_capacity, peer, on, needs)
    _check_room(capacity(), _capacity(peer, on, {}), workers_per_trial)
    held = Held(peer, _sources(data, validation))
    try:
        held.compute(workers_per_trial * (concurrency or 1), keras_framework().role_bytes)
        data = replace(data, rows=rows_of(held.segments[_DATA].schema))
        if validation is not None:
            validation = replace(validation, rows=rows_of(held.segments[_VALIDATION].schema))
        fitting = _Fitting(
            build=build,
            data=data,
            validation=validation,
            workers=workers_per_trial,
            seed=seed,
            shuffle=shuffle,
            validation_batch_size=validation_batch_size,
            defaults={
                "batch_size": batch_size or BATCH_SIZE,
                "epochs": epochs,
                "callbacks": listed,
                "class_weight": weights,
            },
        )
        found = Trials(study, fitting.task, metric=metric, most=trials, timeout_s=timeout_s)
        start = partial(
            launch,
            TrialLoop(),
            roles={"worker": workers_per_trial},
            data={"worker": held.segments[_DATA]},
            datasets={VALIDATION: held.segments[_VALIDATION]} if validation is not None else {},
            framework=keras_framework(),
            recovery=None,
            on=on,
            resources=resources,
            client=client,
            wait=False,
            name="search",
            runs_on_host=_runs_on_host(_room(peer, on, needs), workers_per_trial, min(trials, concurrency or trials)),
        )
        crew = Crew(start=start, workers=workers_per_trial, most=concurrency, capacity=capacity)
        return _train(Slots(peer, crew, found), found, SearchDisplay(progress, metric=metric, trials=trials))
    finally:
        held.release()


def _train(slots: Slots, trials: Trials, display: SearchDisplay) -> SearchResult:
    def show(now: Sequence[Slot]) -> None:
        display.update(trials.ended, [slot.handed for slot in now if slot.handed], trials.best_ended)

    try:
        with display:
            slots.train(show)
    except KeyboardInterrupt as interrupt:
        trials.cut_short("It was interrupted.")
        interrupt.search = SearchResult(trials)  # type: ignore[attr-defined]
        raise
    except BaseException as failure:
        trials.cut_short(f"The search ended: {failure}")
        raise
    finally:
        trials.close()
    failed = [ended for ended in trials.ended if ended.state == "FAIL"]
    if failed and len(failed) == len(trials.ended):
        error = RoleFailedError(f"All {len(failed)} trials have failed. Trial {failed[0].number}: {failed[0].error}")
        if failed[0].traceback:
            error.add_note(f"Traceback of trial {failed[0].number}:\n{failed[0].traceback.rstrip()}")
        raise error
    return SearchResult(trials)


def _check(build: Any, metric: Any, direction: Any, timeout_s: Any) -> None:
    if not callable(build):
        raise TypeError(f"build is {build!r}; pass a function of an optuna trial that returns a compiled model.")
    if not isinstance(metric, str) or not metric:
        raise ValueError(f"metric is {metric!r}; pass the name of a score, such as 'val_accuracy' or 'val_loss'.")
    if direction not in ("maximize", "minimize"):
        raise ValueError(f"direction is {direction!r}; it is 'maximize' or 'minimize'.")
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0
    ):
        raise ValueError(f"timeout_s is {timeout_s!r}; it is a number of seconds above 0, or None.")


def _sources(data: FitData, validation: FitData | None) -> dict[str, Source | SharedSegments]:
    sources = {_DATA: data.source(_DATA)}
    if validation is not None:
        sources[_VALIDATION] = validation.source(_VALIDATION)
    return sources


def _room(peer: Peer, on: Sequence[str] | None, needs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Host of each Dask worker that may be used, and how many workers of trials its threads and resources hold."""
    workers = peer.dask_end.scheduler_info(n_workers=-1)["workers"]
    chosen = workers if on is None else {address: workers[address] for address in on if address in workers}
    found = []
    for worker in chosen.values():
        has = worker.get("resources") or {}
        by_resource = [int(has.get(name, 0) // amount) for name, amount in needs.items() if amount]
        found.append((worker["host"], min([worker["nthreads"], *by_resource])))
    return found


def _capacity(peer: Peer, on: Sequence[str] | None, needs: Mapping[str, Any]) -> int:
    return sum(count for _, count in _room(peer, on, needs))


def _needs(resources: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a worker of a trial needs; what they may be is checked where a run is started."""
    needs: Mapping[str, Any] = (resources or {}).get("worker", resources or {})
    known = all(isinstance(amount, int | float) and not isinstance(amount, bool) for amount in needs.values())
    if not known or any(amount < 0 for amount in needs.values()):
        raise ValueError(f"resources is {resources!r}; it is a dict of names to numbers from 0.")
    return needs


def _check_room(capacity: int, num_threads: int, workers: int) -> None:
    if num_threads > 0 and capacity < workers:  # where there is no Dask worker yet, some may come
        raise PlacementError(
            f"A trial of {workers} workers needs room for {workers}, and the Dask workers that may be used hold "
            f"{capacity}, with {num_threads} threads in all.",
            change="Pass a smaller workers_per_trial or fewer resources, or add Dask workers.",
        )


def _runs_on_host(room: Sequence[tuple[str, int]], workers: int, most: int) -> int:
    """How many slots will share a host's cores."""
    slots = min(most, sum(count for _, count in room) // workers)
    return max(1, math.ceil(slots / max(1, len({host for host, _ in room}))))
