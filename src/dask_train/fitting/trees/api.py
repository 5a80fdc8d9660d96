"""``fit`` of boosted trees: what is checked and started in the client, for estimators of XGBoost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.checkpoint.policy import Checkpoint, check_best_of_train, check_checkpoint
from dask_train.cluster.arrivals import default_fit_workers
from dask_train.cluster.clients import client_or_local, client_or_none
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections import Source
from dask_train.driver.handle import Run
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.checkpoint_checks import check_best_of_fit
from dask_train.fitting.logged import params_of_trees
from dask_train.fitting.schemas import learnt_for
from dask_train.fitting.trees.result import TreesResult, grown
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.rows import TreeData, tree_data
from dask_train.fitting.trees.task import EvalSet, RowsPlan, TreesTask
from dask_train.logging.log import check_log
from dask_train.report.progress import progress_of
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule, check_stop
from dask_train.shared_data.streaming import check_streaming
from dask_train.training.launch import DEFAULT, check_start, launch

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# What LightGBM calls the rows to train on where they are scored, too: as a data set of their own.
TRAINING = "training"
# Rows that are scored: features and targets, and what else goes with them by name.
Evals = Sequence[tuple[Any, Any, Mapping[str, Any]]]


@frees_its_thread
def fit_xgboost(  # noqa: PLR0913 - XGBoost's own arguments, and ours
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    base_margin: Any = None,
    qid: Any = None,
    validation_data: Any = None,
    eval_set: Sequence[tuple[Any, Any]] | None = None,
    sample_weight_eval_set: Sequence[Any] | None = None,
    base_margin_eval_set: Sequence[Any] | None = None,
    eval_qid: Sequence[Any] | None = None,
    xgb_model: Any = None,
    verbose: str | int | bool = "auto",
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    workers: int | None = None,
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
    log: Any = None,
) -> TreesResult | Run[TreesResult]:
    """Fit an estimator of XGBoost on the Dask cluster that holds the rows; :func:`dask_train.fit` calls it.

    Parameters
    ----------
    model : xgboost.XGBModel
        ``XGBClassifier``, ``XGBRegressor``, ``XGBRanker``, or one of the random forests; with ``tree_method="hist"``
        (the default). It is fitted in place. ``n_jobs`` is the share of the host's cores that each worker has.
    x, y, sample_weight, base_margin
        As of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or a data set of
        :func:`dask_train.get_dataset`, with the targets. Missing values are NaN, or the estimator's ``missing``;
        categories of frames have to be known, and are encoded alike on all workers.
    qid
        For rankers, the number of each row's query; in any order. A query whose rows lie in several partitions is
        brought together on one worker: sort by it where there are many rows. A row's weight is that of its query.
    validation_data, eval_set, sample_weight_eval_set, base_margin_eval_set, eval_qid
        Rows that are scored after each round: ``(X, y)`` or ``(X, y, sample_weight)``, or a frame like ``x``; or what
        XGBoost takes. An element that is ``(x, y)`` itself scores the rows that are trained on.
    xgb_model
        A booster, or a fitted estimator, to go on with.
    verbose
        As ``dt.fit`` takes it for Keras' models; "auto" shows progress in terminals and notebooks.
    features, label
        Columns of a frame, in place of ``y``; ``sample_weight``, ``base_margin`` and ``qid`` are names then, too.
    stop
        On scores by their names in ``history``, and ``round``; see :func:`dask_train.train`. It ends after a round
        that is the same for all workers.
    checkpoint, resume
        As of ``dt.fit``: a checkpoint holds the booster, the callbacks and all scores, by default one a minute and the
        last one. What goes on with one makes the same trees as what was never stopped. ``n_estimators`` may be
        another one.
    workers, recovery, on, resources, client, wait, name, log
        As of :func:`dask_train.fit`; a log gets the booster in its library's own format. Without ``checkpoint`` a lost
        worker means that all begin again.
    streaming
        True, or how many partitions make a group: data larger than memory. Dask computes the rows a group at a time,
        once in all, onto the local disks of the Dask workers, where their bins stay for as long as they are trained on
        (``xgboost.ExtMemQuantileDMatrix``). Validation sets, targets and weights have to fit in memory.

    Returns
    -------
    TreesResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`. What XGBoost refuses is the cause of a RoleFailedError.

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
    from dask_train.fitting.trees.xgboost_ranks import check_together  # it imports XGBoost

    fit_checks.check_counts(workers=workers)
    check_start(name=name, wait=wait)
    _check_xgboost(model, qid)
    if check_streaming(streaming) is not None:
        _check_streamed(model)
    others = {"sample_weight": sample_weight, "margin": base_margin, "qid": qid}
    evals = evals_of(validation_data, eval_set, sample_weight_eval_set, base_margin_eval_set, eval_qid, by_name=others)
    return start(
        TreesTask,
        library="xgboost",
        model=model,
        rows=(x, y, others),
        evals=evals,
        eval_names=[f"validation_{number}" for number in range(len(evals))],
        columns=(features, label),
        first=xgb_model,
        settings={},
        verbose=verbose,
        workers=workers,
        stop=stop,
        checkpoint=checkpoint,
        resume=resume,
        client=client,
        streaming=streaming,
        together=partial(check_together, model.get_params()),
        by_validation_data=validation_data is not None,
        launched={"recovery": recovery, "on": on, "resources": resources, "wait": wait, "name": name, "log": log},
    )


def start(  # noqa: PLR0913
    task: type[TreesTask],
    *,
    library: str,
    model: Any,
    rows: tuple[Any, Any, Mapping[str, Any]],
    evals: Evals,
    eval_names: Sequence[str],
    columns: tuple[Any, Any],
    first: Any,
    settings: Mapping[str, Any],
    verbose: Any,
    workers: int | None,
    stop: Any,
    checkpoint: Any,
    resume: bool,
    client: Any,
    launched: Mapping[str, Any],
    streaming: bool | int = False,
    together: Callable[[int], None] | None = None,
    by_validation_data: bool = False,
) -> Any:
    """Check what both libraries share, and start the run.

    ``together`` sees that so many workers can train it; ``by_validation_data`` is how what is scored was passed.
    """
    _check_plain(model, library)
    check_log(launched["log"])
    progress = progress_of(verbose)
    rule = check_stop(stop)
    kept = check_checkpoint(checkpoint, resume)
    _check_best(kept, validates=bool(evals))
    fit_checks.check_stop_names(rule, validates=bool(evals))
    features, label = columns
    known = None if first is None else learnt_for(first)
    if (count := workers) is None:
        if client_or_none(client) is None:  # then a cluster is started, of which wrong data has no need
            looked_at = tree_data("data", *rows, features=features, label=label, known=known)
            _check_taken(model, looked_at.plan)
            _check_labels(model, library, looked_at)
        client = client_or_local(client, 0)
        count = default_fit_workers(client, launched["on"])
    made = partial(tree_data, features=features, label=label, workers=count)
    data = made("data", *rows, known=known)
    _check_taken(model, data.plan)
    _check_labels(model, library, data)
    if workers is None and data.num_parts is not None:
        count = min(count, data.num_parts)
    is_streamed = check_streaming(streaming) is not None
    if is_streamed:
        _check_enough(data.num_parts, count)
    if together is not None:
        together(count)
    told = ["validation_data" if by_validation_data else f"eval_set[{number}]" for number in range(len(evals))]
    sets, sources = _eval_sets(evals, rows, data, made, list(zip(eval_names, told, strict=True)))
    return launch(
        TreesRole(
            task(
                library=library,
                estimator=model,
                plan=data.plan,
                evals=tuple(sets),
                start=first,
                settings=settings,
                keeps=kept is not None,
                resume=resume,
                streamed=is_streamed,
            )
        ),
        roles={"worker": count},
        data={"worker": data.source},
        datasets=sources,
        streaming=streaming,
        framework=library,
        stop=rule,
        checkpoint=kept,
        resume=resume,
        client=client,
        progress=progress,
        params=params_of_trees(model),
        finish=partial(grown, model=model, callbacks=settings.get("callbacks") or (), evals=sets, schema=data.schema),
        **{**launched, "name": launched["name"] or "fit"},
    )


def _eval_sets(
    evals: Evals,
    rows: tuple[Any, Any, Any],
    data: TreeData,
    made: Callable[..., TreeData],
    names: Sequence[tuple[str, str]],
) -> tuple[list[EvalSet], dict[str, Any]]:
    """The rows that are scored, and those of them that are not those to train on.

    ``names`` are those in the run, and those in errors.
    """
    is_own = [is_same(each, rows) for each in evals]
    sets: list[EvalSet] = []
    sources: dict[str, Any] = {}
    for number, (x, y, others) in enumerate(evals):
        name, what = names[number]
        if is_own[number] and name != TRAINING:
            sets.append(EvalSet(name=name, prefix="", dataset="", plan=data.plan))
            continue
        found = made(what, x, y, others, known=data.schema)
        if (found.plan.num_features, found.plan.names) != (data.plan.num_features, data.plan.names):
            raise ValueError(
                f"{what} has the features {found.plan.names or found.plan.num_features}, and the data "
                f"{data.plan.names or data.plan.num_features}. Pass the same ones in the same order."
            )
        prefix = "" if is_own[number] else "val_" if is_own.count(False) == 1 else f"{name}_"
        sets.append(EvalSet(name=name, prefix=prefix, dataset=name, plan=found.plan))
        sources[name] = found.source
    return sets, sources


def is_same(some: tuple[Any, Any, Mapping[str, Any]], rows: tuple[Any, Any, Mapping[str, Any]]) -> bool:
    """Whether these are the very objects that the rows to train on were passed as."""
    names = {**some[2], **rows[2]}
    return some[0] is rows[0] and some[1] is rows[1] and all(some[2].get(each) is rows[2].get(each) for each in names)


def evals_of(
    validation_data: Any,
    eval_set: Any,
    weights: Any,
    margins: Any,
    qids: Any,
    *,
    by_name: Mapping[str, Any],
) -> list[tuple[Any, Any, dict[str, Any]]]:
    """What is scored, however it was passed."""
    named: dict[str, Any] = {}
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
    lists = {"sample_weight": weights, "margin": margins, "qid": qids}
    for what, values in lists.items():
        if values is not None and len(values) != len(sets):
            raise ValueError(f"There are {len(sets)} sets to score, and {len(values)} of {what}. Pass one for each.")
    return [
        (x, y, {**named, **{what: values[number] for what, values in lists.items() if values is not None}})
        for number, (x, y) in enumerate(sets)
    ]


def _check_plain(model: Any, library: str) -> None:
    """Refuse the library's own estimators for Dask, which each role would have train over a cluster again."""
    kind = type(model)
    if any(each.__module__.startswith(f"{library}.dask") for each in kind.__mro__):
        raise ValueError(
            f"model is a {kind.__name__}, which trains over Dask by itself. Pass {library}."
            f"{kind.__name__.removeprefix('Dask')}, or call the model's own fit."
        )


def _check_best(kept: Checkpoint | None, *, validates: bool) -> None:
    if kept is not None and kept.restore_best:
        raise ValueError(
            "restore_best=True: boosted trees keep the rounds up to the best one by themselves. Pass "
            "early_stopping_rounds to the estimator, or xgboost.callback.EarlyStopping(..., save_best=True)."
        )
    check_best_of_fit(kept, validates=validates, ps=0)
    check_best_of_train(kept)


def _check_xgboost(model: Any, qid: Any) -> None:
    """Refuse what XGBoost does in one process alone."""
    kind = type(model).__name__
    if model.tree_method not in (None, "auto", "hist"):
        raise ValueError(
            f"tree_method={model.tree_method!r}: only histograms are summed over workers from memory that is shared. "
            "Leave tree_method out, or set it to 'hist'."
        )
    if model.booster == "gblinear":
        raise ValueError("booster='gblinear' has no trees. Use dask_train.linear_model, or booster='gbtree'.")
    is_ranker = getattr(model, "_estimator_type", None) == "ranker"
    if is_ranker and qid is None:
        raise ValueError(f"{kind} ranks rows within queries. Pass qid=, the number of each row's query.")
    if qid is not None and not is_ranker:
        raise ValueError(f"qid is for rankers, and model is a {kind}. Leave it out.")
    metrics = model.eval_metric if isinstance(model.eval_metric, list | tuple) else [model.eval_metric]
    if is_ranker and any(map(callable, metrics)):
        raise ValueError("eval_metric of a ranker is a function, which would see the queries of one worker. Name one.")


def _check_taken(model: Any, plan: RowsPlan) -> None:
    """Refuse categories that an estimator takes no notice of."""
    if plan.categories is not None and not getattr(model, "enable_categorical", True):
        named = [name for name, known in zip(plan.names or (), plan.categories, strict=True) if known is not None]
        raise ValueError(
            f"{', '.join(named)} are categories, which {type(model).__name__} takes with enable_categorical=True. Set "
            "it, or make numbers of them."
        )


def _check_labels(model: Any, library: str, data: TreeData) -> None:
    """Refuse text as labels, as far as its type is known, where the library takes numbers alone."""
    columns = data.source.columns if isinstance(data.source, Source) else data.source.schema.columns
    dtype = None if columns is None else np.dtype(columns[data.plan.places["y"]].dtype)
    if dtype is None or dtype.kind not in "USO":
        return
    is_classifier = hasattr(model, "predict_proba")
    if library == "xgboost" or not is_classifier:
        raise ValueError(
            f"The labels are text, and {type(model).__name__} takes numbers"
            + (": 0, 1 and so on for classes" if is_classifier else "")
            + ". Make such of them, with frame[label].astype('category').cat.codes for instance."
        )


def _check_enough(num_parts: int | None, workers: int) -> None:
    """Refuse fewer partitions than workers, of data that is streamed."""
    if num_parts is not None and workers > num_parts:
        raise ValueError(
            f"workers={workers}, and the data has {num_parts} partitions with rows: if it is streamed each worker "
            "needs one at least. Cut it into more partitions, or pass a smaller number."
        )


def _check_streamed(model: Any) -> None:
    """Refuse what is not done with rows that are streamed."""
    if getattr(model, "_estimator_type", None) == "ranker":
        raise ValueError(
            f"streaming with {type(model).__name__}: a query's rows have to be together, and those of data that is "
            "streamed are never all in memory. Leave streaming out, and use more hosts, or float32."
        )
    if model.device not in (None, "cpu"):
        raise ValueError(
            f"streaming with device={model.device!r}: bins of rows that are streamed are made by CPUs, from files. "
            "Leave device out, or streaming."
        )
