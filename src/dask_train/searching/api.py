"""``search``: Optuna's search over models, many trials at a time, on one data set in shared memory; and over grids."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Unpack, overload

from dask_train.arguments import is_default
from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.extras import check_installed, install_command
from dask_train.input_errors import raises_at_the_call
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.models import search_models
from dask_train.searching.result import SearchResult
from dask_train.searching.settings import SearchKeywords

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@overload
def search(
    build: Callable[[Any], Any], x: Any, y: Any = None, *, params: None = None, **settings: Unpack[SearchKeywords]
) -> SearchResult: ...
@overload
def search(build: Any, x: Any, y: Any = None, *, params: Any, **settings: Unpack[SearchKeywords]) -> GridResult: ...
@raises_at_the_call
@frees_its_thread
def search(  # noqa: PLR0913 - what dt.fit takes of a training, and what Optuna takes of a study
    build: Callable[[Any], Any],
    x: Any,
    y: Any = None,
    *,
    metric: str = "val_accuracy",
    direction: str | None = None,
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
    groups: Any = None,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    workers_per_trial: int = 1,
    concurrency: int | None = None,
    sampler: Any = None,
    pruner: Any = None,
    storage: Any = None,
    study_name: str | None = None,
    study: Any = None,
    timeout_s: float | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    client: Client | None = None,
    progress: bool | None = None,
    log: Any = None,
    scoring: Any = None,
    cv: Any = None,
    params: Any = None,
    refit: bool | str = True,
) -> SearchResult | GridResult:
    """Search parameters of a model, with Optuna or over a grid: many trials at a time on the cluster with the data.

    The data is put into shared memory once, for all trials. Each trial is trained in a process on the same host that
    serves one trial after the other, so that Keras or torch is imported once per process and not once per trial.

    Parameters
    ----------
    build
        Called in this process with an ``optuna.trial.Trial``, which suggests parameters; returns a model, or a tuple of
        a model and a dict of arguments that :func:`dask_train.fit` takes for it, for this trial alone. The model is a
        compiled ``keras.Model`` (the dict may have ``batch_size``, ``epochs``, ``callbacks`` and ``class_weight``), a
        ``torch.nn.Module`` (the dict has ``loss`` and ``optimizer``, and may have ``scheduler``,
        ``scheduler_interval``, ``metrics``, ``batch_size`` and ``epochs``), an estimator of XGBoost (no dict) or of
        LightGBM (``eval_metric``, ``callbacks``, ``categorical_feature``), not fitted, an estimator of
        :mod:`dask_train.linear_model` (no dict), or one whose kind was made known by
        :func:`dask_train.register_trainer` (``batch_size``, ``epochs``, and its own settings). All trials have models
        of one kind. A trial whose ``build`` raises has failed; ``optuna.TrialPruned`` prunes it.
        With ``scoring`` or ``cv`` it returns an estimator of scikit-learn's kind instead, or a tuple of one and
        ``{"rounds": n}``, after each of which it is scored and may be pruned. With ``params`` it is no function, but
        an estimator itself, or a pipeline.
    x, y, sample_weight, features, label
        As in :func:`dask_train.fit`: arrays, a frame, or a data set of :func:`dask_train.get_dataset`. What a model
        looks like is not known when columns of a frame are chosen: for one of several inputs or outputs, name them in
        a dict. Of estimators weights may be a column of the frame by its name; see the notes for where they count.
        Default of all but ``x``: none; of ``features``: all columns but those of ``label`` and weights.
    schema
        Of Keras models and torch modules, which columns and categories a frame is to have, as in
        :func:`dask_train.fit`. Default: those of ``x``.
    groups
        Of estimators with folds, the group of each row, for splitters such as ``GroupKFold``: an array, or the name of
        a column of the frame. Default: none.
    metric
        Score that counts, by its name in the history of :func:`dask_train.fit`. A trial's value is the best one of its
        epochs; of boosted trees these are rounds. Linear models are scored once, when their solver has ended, by
        "val_loss", and "val_accuracy" of classes or "val_r2" of least squares. Default: "val_accuracy".
    direction
        Whether more ("maximize") or less ("minimize") of it is better. Default: "maximize"; for metrics that are
        losses or errors by their names, such as "val_loss" and "val_rmse", there is none.
    trials
        Number of trials that this call begins, as ``n_trials`` of Optuna, also where a study continues. Repeats of
        trials whose process or Dask worker was lost come on top. Default: 20.
    epochs, batch_size, callbacks, class_weight, shuffle
        As in :func:`dask_train.fit`, of every trial. ``callbacks`` and ``class_weight`` are of Keras models only; each
        trial is sent the callbacks as they are here. Boosted trees and linear models have none of these: how long they
        are trained is set in the estimator. Default: 5 epochs, 32 rows, no callbacks, no class weights, and
        shuffled rows.
    seed
        Fixes the orders of rows, and what the default sampler draws; from 0 to 2**32 - 1. Default: 0.
    validation_data, validation_split, validation_batch_size
        As in :func:`dask_train.fit`. Estimators are scored on ``validation_data`` instead of folds, with its weights
        where it has some. Boosted trees and linear models need some. Models of a registered kind are not validated:
        ``metric`` is a score of training. Default: none, 0.0, and ``batch_size``.
    workers_per_trial
        Number of processes that train one model together, synchronously. After a trial of several that raises, the next
        trial starts processes anew. Default: 1.
    concurrency
        Number of trials that are trained at a time, at most. Default: as many as the cluster holds.
    sampler
        Sampler of ``optuna.samplers``. One that has no more to suggest, such as ``GridSampler``, ends the search.
        Default: ``TPESampler(seed=seed + n)``, n the number of the call's first trial in the study, 0 in a new one. So
        clients that search one storage at the same time, with the same ``seed``, begin from different random states.
    pruner
        Pruner of ``optuna.pruners``. It sees the metric after each epoch, and a trial that it ends stops at its next
        step. Default: none, and nothing is pruned.
    storage
        Place where Optuna keeps the study: the path of a file for SQLite, a URL, or one of ``optuna.storages``.
        Default: memory.
    study_name
        Name of the study in the storage, which is continued if it is there. Default: a name that Optuna makes.
    study
        A study of Optuna's with one objective, which is continued. It has its own direction, sampler, pruner and
        storage, so these are not passed with it. Default: none.
    timeout_s
        Seconds after which no trial is begun any more; those that are trained continue to their ends. Default: no
        limit.
    checkpoint
        Where to keep the search: a folder that this process and all hosts share, an fsspec URL, or a
        :class:`dask_train.Checkpoint`, which says how often trials keep theirs and how many stay. It holds all trials,
        the sampler (which has to be one that can be pickled), the best model, and checkpoints of trials in hand. A
        trial of an estimator is fitted from its beginning again. Of a grid it holds all scores so far, as often as the
        checkpoint's ``every_s`` says, and at the end the best estimator. Default: nowhere.
    resume
        Resume the search that is there, if there is one: trials that have ended are not trained again
        and count in ``trials``; those in hand resume from their last checkpoint. With another build, data or
        argument it is an error that says what differs. You may change ``trials``, ``timeout_s``, ``concurrency``,
        ``workers_per_trial``, ``callbacks``, ``pruner`` and what concerns the cluster. Default: False.
    on, resources, client
        As in :func:`dask_train.fit`. Default: all Dask workers, no resources, and the client that there is.
    progress
        Show the trials. Default: in terminals and notebooks; elsewhere, as in a log file, a line after 10
        seconds and then one a minute. True writes a line for each trial that ends there.
    scoring
        Of estimators, as ``GridSearchCV`` takes it: the name of a score, a function of an estimator, features and
        targets, or, with ``params``, a list or dict of them; None for the estimator's own ``score``.
    cv
        Of estimators: a number of folds, a splitter of scikit-learn's, or pairs of row numbers; default: 5 where no
        ``validation_data`` is passed. Splitters see targets, and zeros in place of features.
    params
        A grid as ``GridSearchCV`` takes it: a dict of parameters to lists, or a list of such dicts. All of its points
        are tried. Default: none, no grid.
    refit
        With ``params``, whether the best candidate is fitted on all rows; of several scores, the one that counts.
        Default: True.
    log
        As in :func:`dask_train.train`: the search is a run there, and each trial a nested one, with the parameters that
        were tried, its scores and its value. A function is given scores with ``trial``, the trial's number. Of a grid
        each candidate is a nested run, with the scores of its folds over ``step``, the fold's number. Default: nowhere.

    Returns
    -------
    SearchResult
        With ``best_model``, ``best_params``, ``trials_dataframe()`` and Optuna's ``study``; with ``params`` a
        ``GridResult`` with ``best_estimator``, ``best_params``, ``cv_results_`` and ``trials_dataframe()``.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, and nothing has been started; or ``metric`` is not among the scores at the end of the
        first epoch.
    ImportError
        Optuna is not installed; or, with ``params``, ``scoring`` or ``cv``, scikit-learn.
    CheckpointError
        The search can't be kept or resumed: the place can't be read or written, another search keeps its
        checkpoints there, or what is there was begun with something else.
    PlacementError
        The cluster can't hold a single trial.
    RoleFailedError
        All trials of this call have failed; the first one's error is in the message.
    DataError, LaunchError, RoleLostError, StalledError
        The data can't be computed, or processes are lost again and again.
    KeyboardInterrupt
        Ctrl-C: nothing is left on the cluster, and trials in hand are recorded as failed; with ``checkpoint`` they stay
        "running", for a call that resumes. What was found so far is the exception's attribute ``result``, a
        SearchResult, and in the storage.

    Notes
    -----
    A search that is resumed finds what it would have found without a stop, as far as ``build`` draws initial weights
    with seeds of its own and trials are trained one at a time; of several, a sampler's suggestions depend on which ends
    first. With ``storage``, a client that dies within ``build`` leaves that trial "running".

    Estimators are fitted in processes that map the same shared memory, which has the data set once per host; there is
    one process per trial. Over a grid each distinct beginning of a pipeline is fitted once per fold, for all candidates
    that have it in common (the way of dask-learn), and the scores are those of ``GridSearchCV`` on the same folds,
    where the estimators are not random. Candidates that share their first step go through a fold one after the other,
    in one process.

    Weights of rows go to an estimator's ``fit``, of a pipeline to that of its last step. As in ``GridSearchCV``, scores
    of an estimator alone are of weighted rows where they can be (a warning tells where not), and those of a pipeline,
    whose weights scikit-learn has as ``step__sample_weight``, are not.

    Only the weights of the best trial are kept, as they were after its best epoch. They are those of ``dt.fit`` with
    the same model, arguments and seed for as many epochs, up to rounding if processes of several trials share the
    cores of a host. The best module of torch is a copy of what ``build`` returned, without its optimizer. The best
    estimator of trees is a copy, too, whose ``best_iteration`` is that of the best round, with all trees. Trials that
    are pruned after their last epoch count as pruned. A trial in the hands of a client that was killed stays "running"
    in the storage.

    Examples
    --------
    >>> def build(trial):
    ...     units = trial.suggest_int("units", 16, 256, log=True)
    ...     model = keras.Sequential([keras.Input((784,)), layers.Dense(units, "relu"), layers.Dense(10, "softmax")])
    ...     model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    ...     return model
    >>> found = dt.search(build, X, y, validation_data=(Xv, yv), trials=20, epochs=5)
    >>> found.best_params, found.best_model.evaluate(Xt, yt)
    >>> def build(trial):
    ...     rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    ...     adam = functools.partial(torch.optim.Adam, lr=rate)
    ...     return torch.nn.Linear(784, 10), {"loss": torch.nn.CrossEntropyLoss(), "optimizer": adam}
    >>> found = dt.search(build, X, y, validation_data=(Xv, yv), metric="val_loss", direction="minimize")
    >>> found = dt.search(pipeline, X, y, params={"pca__n_components": [5, 10], "svc__C": [1, 10]}, cv=5)
    """
    arguments = dict(locals())
    if params is not None or scoring is not None or cv is not None:
        return _over_estimators(arguments)
    return search_models(build, x, y, arguments)


def _over_estimators(arguments: dict[str, Any]) -> Any:
    """Return the search over estimators that ``search`` was asked for, with what it was given."""
    check_installed("dt.search with params, scoring or cv", "sklearn", install_command("linear"))
    from dask_train.searching.estimators import api

    verb = api.search_trials if arguments["params"] is None else api.search_grid
    parameters = set(inspect.signature(verb).parameters)
    defaults = inspect.signature(search).parameters
    for name in sorted(set(arguments) - parameters):
        default = defaults[name].default
        if not is_default(arguments[name], default):
            raise ValueError(f"{name}={short(arguments[name])} is not of a search over {api.WHAT[verb]}. Leave it out.")
    return verb(**{name: arguments[name] for name in parameters})
