"""``fit`` of boosted trees: what is checked and started in the client, for estimators of XGBoost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dask_train.arguments import takes
from dask_train.cluster.arrivals import default_fit_workers
from dask_train.cluster.clients import client_or_local, client_or_none
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.driver.handle import Run
from dask_train.fitting.data import FitData, check_some_rows
from dask_train.fitting.logged import params_of_estimator
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.settings import of_run
from dask_train.fitting.stop_checks import check_stop_names
from dask_train.fitting.trees.categories import check_going_on
from dask_train.fitting.trees.checks import (
    check_best,
    check_enough,
    check_plain,
    check_rows,
    check_same_features,
    check_stops_early,
    check_streamed,
    check_xgboost,
)
from dask_train.fitting.trees.result import TreesResult, grown
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.rows import num_parts, tree_data
from dask_train.fitting.trees.settings import ROUNDS, TreesSettings, XGBoostSettings
from dask_train.fitting.trees.task import EvalSet, TreesTask
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import launch
from dask_train.training.settings import RunInputs, RunSettings

# What LightGBM calls the rows to train on where they are scored, too: as a data set of their own.
TRAINING = "training"
# Rows that are scored: features and targets, and what else goes with them by name.
Evals = Sequence[tuple[Any, Any, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TreesFit:
    """What a library's own function says of a fit to :func:`start`, which does what both share.

    Attributes
    ----------
    library
        Name of the library, which is that of its adapter.
    model
        Estimator.
    rows
        Features, targets, and what else goes with rows by name.
    evals, eval_names
        Rows that are scored, and what they are called.
    first
        A booster, or a fitted estimator, to continue.
    options
        Arguments for the estimator's own ``fit`` in each role process.
    together
        Checks that a number of workers can train the model.
    checked
        Asks the library itself to check the estimator for rows of a number of features.
    """

    library: str
    model: Any
    rows: tuple[Any, Any, Mapping[str, Any]]
    evals: Evals
    eval_names: Sequence[str]
    first: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    together: Callable[[int], None] | None = None
    checked: Callable[[int], None] | None = None


@frees_its_thread
@takes(XGBoostSettings, RunSettings, without=("gpus",))
def fit_xgboost(model: Any, x: Any = None, y: Any = None, **given: Any) -> TreesResult | Run[TreesResult]:
    """Fit an estimator of XGBoost on the Dask cluster that holds the rows; :func:`dask_train.fit` calls it.

    Parameters
    ----------
    model : xgboost.XGBModel
        ``XGBClassifier``, ``XGBRegressor``, ``XGBRanker``, or one of the random forests; with ``tree_method="hist"``
        (the default). It is fitted in place. ``n_jobs`` is the share of the host's cores that each worker has.
    x, y
        As of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or a data set of
        :func:`dask_train.get_dataset`, with the targets. Missing values are NaN, or the estimator's ``missing``;
        categories of frames have to be known, and are encoded alike on all workers.
    **given
        Fields of :class:`XGBoostSettings` and :class:`~dask_train.training.settings.RunSettings`. A row's weight is
        that of its query, for rankers. ``stop`` looks at scores by their names in ``history``, and ``round``; it ends
        training after a round that is the same for all workers. A checkpoint holds the booster, the callbacks and all
        scores, by default one per minute and the last one. What resumes makes the same trees as what was never
        stopped; ``n_estimators`` may be another one. A log gets the booster in its library's own format. Without
        ``checkpoint`` a lost worker means that all begin again. With ``streaming``, Dask computes the rows a group at a
        time, once in all, onto the local disks of the Dask workers, where their bins stay for as long as they are
        trained on (``xgboost.ExtMemQuantileDMatrix``); validation sets, targets and weights have to fit in memory.

    Returns
    -------
    TreesResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`. What XGBoost refuses is raised as it is, an XGBoostError above
        all, with the worker's traceback as a note.

    Notes
    -----
    Each worker makes a ``QuantileDMatrix`` of its partitions, one after the other, from shared memory: one or two bytes
    a cell besides the data itself, and never a copy of it. Histograms are summed over workers in float64 [1]_. Which
    splits are looked at comes of a sketch of each feature, merged over workers [2]_: features of no more than
    ``max_bin`` different values have the very splits of one process, others have splits that are as good and not the
    same. With ``subsample`` below 1 each worker draws of its own rows, and with ``lambdarank_pair_method="mean"`` of
    its own queries. From run to run the trees are the same where the partitions lie on the same hosts and workers have
    as many threads.

    A metric that is a function is given the rows of all workers. Of XGBoost's own, ``auc`` and ``aucpr`` are means over
    workers, and so are leaves of ``"reg:absoluteerror"`` and ``"reg:quantileerror"`` before XGBoost 3.4; ``notices``
    says so.

    References
    ----------
    .. [1] Chen, Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
    .. [2] Chen, Guestrin, as before, appendix A: weighted quantile sketch.
    """
    from dask_train.fitting.trees.xgboost_checks import check_labels, check_params  # they import XGBoost
    from dask_train.fitting.trees.xgboost_ranks import check_together

    settings, run = XGBoostSettings.of(given), RunSettings.of(given, gpus=None)
    qid = settings.qid
    check_xgboost(model, qid)
    if run.window is not None:
        check_streamed(model)
    others = {"sample_weight": settings.sample_weight, "margin": settings.base_margin, "qid": qid}
    weights, margins = settings.sample_weight_eval_set, settings.base_margin_eval_set
    evals = evals_of(settings, weights, margins, by_name=others)
    fitting = TreesFit(
        library="xgboost",
        model=model,
        rows=(x, y, others),
        evals=evals,
        eval_names=[f"validation_{number}" for number in range(len(evals))],
        first=settings.xgb_model,
        together=partial(check_together, model.get_params()),
        checked=partial(check_params, model.get_xgb_params()),
    )
    check_labels(model, x, y, settings.label)
    return start(fitting, settings, run)


def start(fitting: TreesFit, settings: TreesSettings, run: RunSettings) -> Any:
    """Check what both libraries share, and start the run.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, or the data does not fit the model; nothing has been started.
    """
    model, library, evals, rows = fitting.model, fitting.library, fitting.evals, fitting.rows
    check_plain(model, library)
    check_best(run.checkpoint, validates=bool(evals))
    check_stops_early(model.get_params(), validates=bool(evals))
    check_stop_names(run.stop, validates=bool(evals), known=None if evals else {"round"}, unit="round")
    features, label = settings.features, settings.label
    known = None if fitting.first is None else learnt_for(fitting.first)
    client, count = run.client, 1 if settings.in_process else settings.workers
    if count is None:
        if client_or_none(client) is None:  # then a cluster is started, of which wrong data has no need
            looked_at = tree_data("data", *rows, features=features, label=label, known=known)
            _check_estimator(fitting, looked_at)
        client = client_or_local(client, 0)
        count = default_fit_workers(client, run.on)
    made = partial(tree_data, features=features, label=label, workers=count)
    data = made("data", *rows, known=known)
    check_some_rows("The data", source := data.source("data"))
    _check_estimator(fitting, data)
    check_going_on(library, fitting.first, known, data.columns)
    if settings.workers is None and (most := num_parts(source)) is not None:
        count = min(count, most)
    is_streamed = run.window is not None
    if is_streamed:
        check_enough(num_parts(source), count)
    if fitting.together is not None:
        fitting.together(count)
    is_tuple = settings.validation_data is not None
    told = ["validation_data" if is_tuple else f"eval_set[{number}]" for number in range(len(evals))]
    sets, sources = _eval_sets(evals, rows, data, made, list(zip(fitting.eval_names, told, strict=True)))
    task = TreesTask(
        library=library,
        estimator=deepcopy(model) if settings.in_process else model,
        columns=data.columns,
        evals=tuple(sets),
        start=fitting.first,
        settings=fitting.options,
        streamed=is_streamed,
        **of_run(run),
    )
    callbacks = fitting.options.get("callbacks") or ()
    begin: Any = run_in_process if settings.in_process else launch
    return begin(
        TreesRole(task),
        {"worker": 0 if settings.in_process else count},
        RunInputs(data={"worker": source}, datasets=sources),
        replace(run, client=client, progress=settings.progress).named("fit"),
        framework=library,
        display=partial(settings.display, rounds=model.n_estimators or ROUNDS),
        params=params_of_estimator(model),
        finish=partial(grown, model=model, callbacks=callbacks, evals=sets, schema=data.schema),
    )


def _eval_sets(
    evals: Evals,
    rows: tuple[Any, Any, Any],
    data: FitData,
    made: Callable[..., FitData],
    names: Sequence[tuple[str, str]],
) -> tuple[list[EvalSet], dict[str, Any]]:
    """Return the rows that are scored, and those of them that are not those to train on.

    ``names`` are those in the run, and those in errors.
    """
    is_own = [is_same(each, rows) for each in evals]
    sets: list[EvalSet] = []
    sources: dict[str, Any] = {}
    for number, (x, y, others) in enumerate(evals):
        name, what = names[number]
        if is_own[number] and name != TRAINING:
            sets.append(EvalSet(name=name, prefix="", dataset="", columns=data.columns))
            continue
        found = made(what, x, y, others, known=data.schema)
        check_same_features(what, found.columns, data.columns)
        prefix = "" if is_own[number] else "val_" if is_own.count(False) == 1 else f"{name}_"
        sets.append(EvalSet(name=name, prefix=prefix, dataset=name, columns=found.columns))
        sources[name] = found.source(what)
    return sets, sources


def is_same(some: tuple[Any, Any, Mapping[str, Any]], rows: tuple[Any, Any, Mapping[str, Any]]) -> bool:
    """Return whether these are the very objects that the rows to train on were passed as."""
    names = {**some[2], **rows[2]}
    return some[0] is rows[0] and some[1] is rows[1] and all(some[2].get(each) is rows[2].get(each) for each in names)


def evals_of(
    settings: TreesSettings, weights: Any, margins: Any, *, by_name: Mapping[str, Any]
) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Return what is scored, however it was passed; weights and margins are those of ``eval_set``."""
    named: dict[str, Any] = {}
    validation_data, eval_set = settings.validation_data, settings.eval_set
    if validation_data is not None:
        if eval_set is not None:
            raise ValueError("validation_data and eval_set are two ways to say the same. Pass one of them.")
        given = validation_data
        if not isinstance(given, tuple | list):  # a frame like the data
            named = {name: value for name, value in by_name.items() if isinstance(value, str)}
            given = (given, None)
        elif not 2 <= len(given) <= 3:
            raise ValueError(f"validation_data has {len(given)} elements; it is (X, y) or (X, y, weights).")
        x, y, *weight = given
        if weight and weights is not None:
            raise ValueError("validation_data has weights, and a list of weights was passed, too. Pass one of them.")
        eval_set, weights = [(x, y)], weight or weights
    sets = list(eval_set or ())
    lists = {"sample_weight": weights, "margin": margins, "qid": settings.eval_qid}
    for what, values in lists.items():
        if values is not None and len(values) != len(sets):
            raise ValueError(f"There are {len(sets)} sets to score, and {len(values)} of {what}. Pass one for each.")
    return [
        (x, y, {**named, **{what: values[number] for what, values in lists.items() if values is not None}})
        for number, (x, y) in enumerate(sets)
    ]


def _check_estimator(fitting: TreesFit, data: FitData) -> None:
    """Refuse rows that the estimator can't take, and parameters that its library refuses."""
    check_rows(fitting.model, fitting.library, data.columns)
    if fitting.checked is not None:
        fitting.checked(data.columns.matrix.row_shape[0])
